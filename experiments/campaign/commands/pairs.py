"""``pairs``: each time is the least of all orders of its parts; each pair listed saves time."""

from __future__ import annotations

from campaign.case import Case


def case(case: Case) -> None:
    from tests.support.parts import least_by_trying, random_parts

    document = random_parts(case.rng)
    case.write("parts.json", document)
    ran = case.run("problem", "pairs", "parts.json", "-o", "pairs.json", "--json", "--workers", 1)
    if ran.code != 0:
        return
    said = ran.json()
    least: dict[tuple[tuple[str, str], ...], int] = {}
    for claim in said["times"]:
        ops = [(op["chunk"], op["kind"]) for op in claim["ops"]]
        least[tuple(sorted(ops))] = true = least_by_trying(document, ops)
        shown = (claim["time"], claim["lower_bound"], claim["status"])
        case.expect(shown == (true, true, "optimal"), f"{ops}: {shown}, the least is {true}")
    stages, devices = document["stages"], document["devices"]
    kinds = [(s, k) for k in ("F", "B", "W", "BW") for s in range(len(stages))]
    expected = {}
    for place, (s, k) in enumerate(kinds):
        for other, kind in kinds[place:]:
            ops = sorted([(stages[s], k), (stages[other], kind)])
            if devices[s] == devices[other] and least[tuple(ops)] < sum(least[op,] for op in ops):
                expected[frozenset((f"{s}{k}", f"{other}{kind}"))] = least[tuple(ops)]
    listed = {frozenset(pair["ops"]): pair["time"] for pair in said["overlap"]["pairs"]}
    case.expect(listed == expected, f"listed {listed}, expected {expected}")
    case.notes.add("exact")
