"""Declared data: what is refused, and in which words."""

import math
import subprocess
import sys

import pytest
from pydantic import Field

from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.schema import Many, load_toml, parse, parse_json, record


@record
class Inner:
    size: int = Field(default=1, ge=1)
    shares: Many[float] = ()
    limit: float | None = Field(default=None, gt=0, allow_inf_nan=True)


@record
class Outer:
    name: str
    inner: Inner = Field(default_factory=Inner)
    others: dict[str, Inner] = Field(default_factory=dict)

    def __post_init__(self):
        if self.name == "taken":
            raise ArgumentError("expected another name, got 'taken'")


@pytest.mark.parametrize("encode", [str, str.encode])
def test_whole_numbers_in_json_have_20_digits_at_most(encode):
    text = '{{"name": "{0}", "inner": {{"size": {1}, "shares": [0.{0}]}}, "others": {{"x": {{"size": {2}}}}}}}'
    allowed = encode(text.format("7" * 30, 2**64, 1))
    assert parse_json(Outer, allowed).inner.size == 2**64
    for number in (10**20, 10**400):
        with pytest.raises(DataError, match=r"^a.json: not valid JSON: expected whole numbers of at most 20 digits$"):
            parse_json(Outer, encode(text.format("7" * 30, 1, number)), where="a.json")


def test_plain_data_become_records():
    value = {"name": "a", "inner": {"size": 2, "shares": [1, 0.5]}, "others": {"x": {"limit": math.inf}}}
    expected = Outer("a", Inner(2, (1.0, 0.5)), {"x": Inner(limit=math.inf)})
    assert parse(Outer, value) == expected
    assert parse(Outer, expected) is expected
    assert parse(list[int], [1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "expected a table, got 3"),
        ({}, "name: expected text, got nothing"),
        ({"nam": "a"}, "key='nam' is not known; did you mean 'name'? Choose from: name, inner, others"),
        ({"name": "a", "inner": {"size": "1"}}, "inner.size: expected a whole number of at least 1, got '1'"),
        ({"name": "a", "inner": {"size": 1.0}}, "inner.size: expected a whole number of at least 1, got 1.0"),
        ({"name": "a", "inner": {"shares": [1, "b"]}}, "inner.shares[1]: expected a number, got 'b'"),
        ({"name": "a", "inner": {"shares": [math.nan]}}, "inner.shares[0]: expected a finite number, got nan"),
        ({"name": "a", "inner": {"limit": 0}}, "inner.limit: expected a number above 0, or none, got 0"),
        ({"name": "a", "others": {"x": {"sise": 1}}}, "others.x: key='sise' is not known; did you mean 'size'? "),
        ({"name": "a", "others": {1: {}}}, "others: key=1 is not known. Choose from: any text"),
        ({"name": "taken"}, "expected another name, got 'taken'"),
        ({"name": ["long"] * 100}, f"name: expected text, got {str(['long'] * 100)[:77]}..."),
    ],
)
def test_mistakes_are_one_line_with_their_place(value, message):
    with pytest.raises(DataError) as caught:
        parse(Outer, value, where="state.json:3")
    assert str(caught.value).startswith(f"state.json:3: {message}")
    assert "\n" not in str(caught.value)


def test_the_caller_chooses_the_error():
    with pytest.raises(ModelFileError, match=r"^expected a list of whole numbers, got 'a'$"):
        parse(list[int], "a", error=ModelFileError)
    with pytest.raises(ArgumentError, match=r"^size: expected a whole number of at least 1, got 0$"):
        Inner(size=0)


def test_toml_by_name_or_from_a_file(tmp_path):
    (tmp_path / "a.toml").write_text("x = 1")
    assert load_toml("recipe", tmp_path / "a.toml", "recipes") == {"x": 1}
    assert load_toml("recipe", "quick", "recipes")["features"]["rate"] == 22050


def test_help_does_not_wait_for_pydantic():
    code = "import sys, earmark, earmark.cli; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
