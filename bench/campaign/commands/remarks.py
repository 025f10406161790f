"""What is stated and perhaps not meant: a remark that names it, no other, and never an error."""

from __future__ import annotations

from campaign.case import Case
from campaign.commands.common import family_of
from campaign.judge.reading import load
from campaign.judge.stated import false_remarks
from campaign.problems.stated import PLACES, stated

FAMILIES = PLACES


def case(case: Case) -> None:
    document = stated(case.rng, family_of(case))
    case.write("problem.json", document)
    words = ["solve", "problem.json", "--workers", 1, "--time-limit", 0.2 if case.quick else 0.5]
    ran = case.run(*words, "-o", "out", "--json")
    said = ran.json()
    if ran.code or not case.expect(isinstance(said, dict), "prints no result"):
        return
    remarks = said.get("remarks")
    case.violations += false_remarks(document, remarks)
    written = load(case.folder / "out" / "result.json").get("remarks")
    case.expect(written == remarks, f"result.json has the remarks {written}")
    ran = case.run(*words)
    shown = " ".join((ran.out + ran.err).split()).lower()
    for one in remarks or []:  # of stages alike one line tells, as "stages 0-2: ..."
        fact = one["text"].rpartition(": ")[2].partition(" (")[0].partition(". ")[0]
        case.expect(fact.lower() in shown, f"the answer does not show the remark {one}")
