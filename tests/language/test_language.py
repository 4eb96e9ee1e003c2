"""The language by example: each `*.md` beside this file is read as it stands.

Renew what comes out of the cases with `python -m tests.language.test_language`, then read the difference.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.language.cases import Case, cases, outcome, pages, renewed, sections
from tests.language.reference import TARGET, anchor, reference

ALL = [case for page in pages() for case in cases(page)]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.file.removesuffix('.md')}: {case.title}")
def test_case(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert outcome(case) == case.results


def test_every_diagnostic_of_the_language_has_a_case() -> None:
    shown = {match for case in ALL for match in re.findall(r"^(?:error|warning)\[([a-z-]+)\]", case.text, re.MULTILINE)}
    code = "\n".join(path.read_text() for path in (ROOT / "omnic/dsl").rglob("*.py"))
    written = set(re.findall(r"(?:error|warning|_error)\(\s*\"([a-z][a-z-]+)\",", code))
    assert len(written) > 50
    assert written - shown == set()


def test_the_reference_is_made_of_these_pages() -> None:
    assert TARGET.read_text(encoding="utf-8") == reference(), "run `python -m tests.language.reference`"


def test_headings_lead_to_one_place() -> None:
    titles = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", reference(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    assert len({anchor(title) for title in titles}) == len(titles)


def main() -> None:
    """Renews the pages."""
    for page in pages():
        found = {case.text: case for case in cases(page)}
        parts = []
        for section in sections(page.read_text(encoding="utf-8")):
            if section in found:
                with tempfile.TemporaryDirectory() as directory:
                    before = Path.cwd()
                    os.chdir(directory)
                    section = renewed(found[section])
                    os.chdir(before)
            parts.append(section)
        page.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
