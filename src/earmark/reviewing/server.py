"""The web application of a review: JSON, tiles and sound for the page.

An invalid request changes nothing; the response is {"error": "..."} with a status of 4xx.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Body, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from safetensors import SafetensorError, safe_open
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from earmark.errors import ArgumentError, EarmarkError
from earmark.formats import FORMATS
from earmark.reviewing import queues, tiles
from earmark.reviewing.again import Trainer
from earmark.reviewing.events import Event
from earmark.reviewing.exporting import AUDIO, WHICH, Export, export_labels, export_snippets
from earmark.reviewing.journal import KINDS
from earmark.reviewing.labels import TableWriter
from earmark.reviewing.queues import ORDERS, Queues
from earmark.reviewing.sound import byte_range, excerpt
from earmark.reviewing.state import Review
from earmark.reviewing.tiles import TileCache
from earmark.schema import parse_json

STATIC = Path(__file__).parent / "static"
_MOST = 500  # items of a page
_MOST_SHOWN = 2000  # events of a view
_MOST_POINTS = 4096

Times = Annotated[float, Query(ge=0, le=1e9)]
First = Annotated[int, Query(ge=0, le=10**9)]
Count = Annotated[int, Query(ge=1, le=_MOST)]


class Session:
    """The objects that the application serves."""

    def __init__(self, review: Review, cache: TileCache, writer: TableWriter) -> None:
        self.review, self.cache, self.writer = review, cache, writer
        self.queues = Queues(review)
        self.trainer = Trainer(review.source)

    def close(self) -> None:
        """Stop training, and write verdicts.csv."""
        self.trainer.close()
        self.writer.close()


def create_app(session: Session) -> FastAPI:
    """The application, without access control: wrap it in `earmark.reviewing.guard.Guard`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _add_errors(app)
    _add_recordings(app, session)
    _add_sound(app, session)
    _add_events(app, session)
    _add_progress(app, session)
    _add_actions(app, session)
    _add_exports(app, session)
    _add_training(app, session)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        text = (STATIC / "index.html").read_bytes()
        return Response(text, media_type="text/html; charset=utf-8", headers={"cache-control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(EarmarkError)
    def refuse(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: Exception) -> JSONResponse:
        mistakes = error.errors() if isinstance(error, RequestValidationError) else []
        first = mistakes[0] if mistakes else {"loc": (), "msg": "not valid"}
        if first["loc"][:1] == ("body",):
            return JSONResponse({"error": "expected a JSON object"}, 422)
        return JSONResponse({"error": f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"}, 422)

    @app.exception_handler(HTTPException)
    def missing(request: Request, error: Exception) -> JSONResponse:
        code = error.status_code if isinstance(error, HTTPException) else 404
        text = "there is nothing at this address" if code in (404, 405) else "expected a JSON object"
        return JSONResponse({"error": text}, code)

    @app.exception_handler(OSError)
    def disk(request: Request, error: Exception) -> JSONResponse:
        reason = getattr(error, "strerror", None) or str(error)
        return JSONResponse({"error": f"{getattr(error, 'filename', None) or 'disk'}: {reason}"}, 507)


def _add_recordings(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.get("/api/session")
    def about() -> dict[str, Any]:
        source = review.source
        return {
            "title": source.title,
            "kind": source.kind,
            "folder": str(source.folder.absolute()),
            "classes": review.classes,
            "recordings": len(source.recordings),
            "reviewer": _user(),
            "orders": ORDERS,
            "formats": [
                {"name": f.name, "perRecording": f.cls.per_recording} for f in FORMATS if f.name != "dcase2017"
            ],
            "which": WHICH,
            "audio": AUDIO,
            "tiles": {"columns": tiles.COLUMNS, "rows": tiles.ROWS, "levels": tiles.LEVELS, "scales": tiles.SCALES},
            "canTrain": session.trainer.problem() is None,
            "trainingData": _training_data(source.model),
        }

    @app.get("/api/recordings")
    def recordings(search: str = "", first: First = 0, count: Count = 200) -> dict[str, Any]:
        wanted = [one for one in review.source.recordings if search.casefold() in one.name.casefold()]
        rows = [
            {**review.describe_recording(one.index), "duration": one.duration, "began": _clock(one.began)}
            for one in wanted[first : first + count]
        ]
        return {"total": len(wanted), "recordings": rows}

    @app.get("/api/recordings/{index}")
    def recording(index: int) -> dict[str, Any]:
        one = review.recording(index)
        problem = one.problem()
        values = {**review.describe_recording(index), "began": _clock(one.began), "problem": problem}
        if problem is None:
            info = one.info()
            values |= {"duration": info.duration, "rate": info.rate}
        return values


def _add_sound(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.get("/api/recordings/{index}/tiles/{scale}/{level}/{tile}")
    def one_tile(index: int, scale: str, level: int, tile: int) -> Response:
        data = session.cache.get(review.recording(index), scale, level, tile)
        return Response(data, media_type="application/octet-stream", headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/recordings/{index}/sound.wav")
    def sound(request: Request, index: int, onset: Times = 0.0, offset: Times | None = None) -> Response:
        part = excerpt(review.recording(index).path, onset, offset)
        headers = {"accept-ranges": "bytes", "cache-control": "private, max-age=3600"}
        try:
            bounds = byte_range(request.headers.get("range"), part.size)
        except ArgumentError as error:
            return JSONResponse({"error": str(error)}, 416, headers={"content-range": f"bytes */{part.size}"})
        begin, end = bounds or (0, part.size)
        headers["content-length"] = str(end - begin)
        if bounds:
            headers["content-range"] = f"bytes {begin}-{end - 1}/{part.size}"
        status = 200 if bounds is None else 206
        return StreamingResponse(part.read(begin, end), status, headers, media_type="audio/wav")

    @app.get("/api/recordings/{index}/probabilities")
    def probabilities(index: int, onset: Times, offset: Times, points: int = 1000) -> dict[str, Any]:
        return _probabilities(session, index, onset, offset, points)


def _add_events(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.get("/api/recordings/{index}/events")
    def events(index: int, onset: Times = 0.0, offset: Times = 1e9) -> dict[str, Any]:
        review.recording(index)
        with review.lock:
            seen = review.events_between(index, onset, offset)
            total = len(seen)
            if total > _MOST_SHOWN:  # those of the highest confidence
                seen = sorted(seen, key=_rank)[:_MOST_SHOWN]
            return {
                "total": total,
                "events": list(map(review.describe, seen)),
                "recording": review.describe_recording(index),
            }

    @app.get("/api/events/{id}")
    def event(id: str) -> dict[str, Any]:
        with review.lock:
            one = review.event(id)
            return {**review.describe(one), "score": queues.explain(review, one)}

    @app.get("/api/events/{id}/thumbnail")
    def picture(id: str) -> Response:
        with review.lock:
            now = review.event(id).current
            one = review.recording(review.event(id).given.recording)
        margin = max(0.25, 0.25 * (now.offset - now.onset))
        data = tiles.thumbnail(one, max(0.0, now.onset - margin), now.offset + margin).tobytes()
        return Response(data, media_type="application/octet-stream")

    @app.get("/api/queue")
    def make_queue(
        order: str = "time",
        status: str = "open",
        label: str | None = None,
        recording: int | None = None,
        seed: First = 0,
        count: Count = 100,
    ) -> dict[str, Any]:
        name, total = session.queues.make(queues.Query(order, status, label or None, recording, seed))
        page = session.queues.page(name, 0, count)
        return {"queue": name, "total": total, "events": list(map(review.describe, page))}

    @app.get("/api/queue/{name}")
    def queue_page(name: str, first: First = 0, count: Count = 100) -> dict[str, Any]:
        return {"events": list(map(review.describe, session.queues.page(name, first, count)))}


def _add_progress(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.get("/api/progress")
    def progress() -> dict[str, Any]:
        review.update()
        return review.progress()

    @app.get("/api/updates")
    def updates(since: First, reviewer: str = "") -> dict[str, Any]:
        review.update()
        return _changes(session, since, reviewer)

    @app.get("/api/history")
    def history(count: Count = 100) -> dict[str, Any]:
        with review.lock:
            rows = [{**entry.to_dict(), "counts": counts} for entry, counts in review.history(count)]
        for row in rows:
            if "events" in row:
                row["total"], row["events"] = len(row["events"]), row["events"][:3]
        return {"actions": rows}


def _add_actions(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.post("/api/actions")
    def act(request: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        since, action = request.pop("since", review.number), request.get("action")
        if type(since) is not int:
            raise ArgumentError(f"since: expected a whole number, got {since!r:.40}")
        if not isinstance(action, str) or action not in KINDS:
            raise ArgumentError(f"action: expected one of {', '.join(KINDS)}, got {action!r:.80}")
        entry = review.act(request)
        session.writer.notify()
        return {"entry": entry.to_dict(), **_changes(session, since, entry.reviewer)}


def _add_exports(app: FastAPI, session: Session) -> None:
    review = session.review

    @app.get("/api/export")
    def export(format: str = "csv", which: str = "verified") -> Response:
        return _download(export_labels(review, format, which))

    @app.post("/api/snippets")
    def snippets(request: Annotated[dict[str, Any], Body()]) -> Response:
        ids, kind, margin = request.get("events"), request.get("kind", "wav"), request.get("margin", 0.5)
        if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
            raise ArgumentError("events: expected a list of ids")
        if not isinstance(margin, int | float) or not isinstance(kind, str):
            raise ArgumentError("expected a number of seconds as margin, and wav or flac as kind")
        return _download(export_snippets(review, [review.event(id) for id in ids], kind, margin))


def _add_training(app: FastAPI, session: Session) -> None:
    @app.get("/api/training")
    def status() -> dict[str, Any]:
        return session.trainer.status()

    @app.post("/api/training")
    def start(request: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        data = request.get("data")
        if not isinstance(data, str):
            raise ArgumentError("data: expected the folder of the labelled clips")
        session.trainer.start(data)
        return session.trainer.status()

    @app.post("/api/training/stop")
    def stop(request: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        session.trainer.stop()
        return session.trainer.status()


def _rank(event: Event) -> float:
    """The order of events of which only some are shown: without a confidence first, then by confidence."""
    return -1.0 if event.given.confidence is None else -event.given.confidence


def _training_data(model: Path | None) -> str:
    """The data set that a model was trained on, from its file; empty if it is not recorded there."""
    if model is None or not model.is_file() or model.suffix != ".safetensors":
        return ""
    try:
        with safe_open(model, "numpy") as file:  # not `earmark.checkpoint`, which imports PyTorch
            about = parse_json(dict[str, Any], (file.metadata() or {})["earmark"])
        return str(about["provenance"].get("data_source", ""))
    except (SafetensorError, OSError, EarmarkError, LookupError, TypeError, AttributeError):
        return ""


def _changes(session: Session, since: int, reviewer: str) -> dict[str, Any]:
    """Events and recordings that changed after an action, and the state of the review."""
    review = session.review
    with review.lock:
        events, recordings = review.changed_since(since)
        return {
            "number": review.number,
            "events": list(map(review.describe, events[:_MOST_SHOWN])),
            "ruledOut": sum(event.by_stretch for event in events),
            "recordings": [review.describe_recording(index) for index in recordings],
            "progress": review.progress() if review.number != since else None,
            "can": review.can_undo(reviewer),
            "classes": review.classes,
            "notice": review.source.notice(),
        }


def _probabilities(session: Session, index: int, onset: float, offset: float, points: int) -> dict[str, Any]:
    """The largest probability of each class in each of `points` equal parts of an interval, in per cent."""
    one = session.review.recording(index)
    scores = session.review.source.scores(one)
    if not 1 <= points <= _MOST_POINTS or not offset > onset:
        raise ArgumentError(f"expected an offset after the onset, and 1 to {_MOST_POINTS} points")
    if scores is None:
        return {"classes": [], "values": []}
    edges = np.linspace(onset, offset, points + 1) / scores.hop
    first = np.clip(np.floor(edges[:-1]).astype(np.int64), 0, len(scores.p))
    last = np.clip(np.ceil(edges[1:]).astype(np.int64), 0, len(scores.p))
    values = np.zeros((points, len(scores.classes)), np.float32)
    for k, (begin, end) in enumerate(zip(first, last, strict=True)):
        if end > begin:
            values[k] = scores.p[begin:end].max(0)
    return {"classes": scores.classes, "values": np.round(values.T * 100).astype(int).tolist()}


def _download(export: Export) -> Response:
    name = export.name.encode("ascii", "ignore").decode() or "export"
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return Response(export.data, media_type=export.kind, headers=headers)


def _clock(began: Any) -> str | None:
    return None if began is None else began.isoformat()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "reviewer"
