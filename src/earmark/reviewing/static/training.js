// Training again with the verdicts, and whether it helped.

import { get, post } from "./api.js";
import * as dialogs from "./dialogs.js";
import { make, showError } from "./text.js";

const EXPLANATION = "Continues training the model of this job with its labels and your verdicts, evaluates the old " +
  "and the new model on clips that neither was trained on, and runs detection with the new one. The old model and " +
  "its events are kept.";

/** @param {any} session */
export async function showTraining(session) {
  const log = make("pre", { class: "log", tabindex: "0" });
  const bar = make("progress", { max: 1, hidden: true });
  const verdict = make("p", { class: "result" });
  const start = make("button", { type: "button", class: "primary", id: "train-start" }, "Train again");
  const stop = make("button", { type: "button", hidden: true }, "Stop");
  const placeholder = "folder of labelled clips, as for earmark train";
  const data = make("input", { class: "wide-input", id: "train-data", placeholder });
  data.value = session.trainingData;
  let isOpen = true;

  const update = async () => {
    const state = await get("training");
    log.textContent = state.lines.join("\n");
    log.hidden = !state.lines.length;
    log.scrollTop = log.scrollHeight;
    bar.hidden = !state.running;
    if (state.share === null) bar.removeAttribute("value"); else bar.value = state.share;
    start.disabled = state.running;
    stop.hidden = !state.running;
    verdict.textContent = state.error ?? state.summary ?? "";
    return state.running;
  };
  const follow = async () => {
    while (isOpen && await update()) await new Promise((resolve) => setTimeout(resolve, 700));
  };
  start.addEventListener("click", () => void post("training", { data: data.value }).then(follow).catch(showError));
  stop.addEventListener("click", () => void post("training/stop", {}).catch(showError));
  void follow().catch(showError);

  await dialogs.open("Train again", make("p", { class: "muted" }, EXPLANATION),
    make("label", {}, make("h3", {}, "Labelled clips"), data),
    make("div", { class: "row" }, start, stop), bar, verdict, log);
  isOpen = false;
}
