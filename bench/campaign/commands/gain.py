"""Every gain that ``advise`` and ``plan`` print, held against 1F1B and interleaved 1F1B of our own.

The alternative that a gain names is the best of all its settings that the judge can build (group
sizes that the runtime admits, on the even and the balanced split of every placement, within
memory), or the answer says how many of how many settings were tried. What is taken is no worse than
a row of the answer's own table.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

from campaign.case import Case
from campaign.commands.advise import RUNTIMES, expected_problem
from campaign.commands.advise_cut import families_of
from campaign.commands.common import family_of
from campaign.judge import plans, said
from campaign.judge.known import built, cuts, in_turns, most_work, shipped_group, takes_group
from campaign.judge.limits import shown
from campaign.judge.reading import load
from campaign.problems.layered import model

FAMILIES = (*RUNTIMES, "plan")
_BUILDS = 60  # settings that the judge builds of one answer


def case(case: Case) -> None:
    rng = case.rng
    devices = rng.choice([2, 2, 3, 4])
    document = model(rng, devices)
    case.write("layers.json", document)
    layers = document["layers"]
    microbatches = rng.choice([devices * rng.randint(1, 6), rng.randint(1, 14)])
    held = sum(layer["held_after_F"] for layer in layers)
    weights = sum(layer["weights"] for layer in layers)
    memory = None
    if rng.random() < 0.6:
        memory = weights // devices + rng.randint(held // devices, 2 * held)
    question = plans.Question(
        layers, devices, microbatches, [memory] * devices, (), "never", rng.choice([0, 0, 1])
    )
    words = ["--devices", devices, "--microbatches", microbatches, "--workers", 1]
    words += ["--link-delay", question.latency]
    limits = [0.05, 0.3] if case.quick else [0.02, 0.05, 0.1, 0.3, 1, 3]
    words += ["--time-limit", rng.choice(limits)]
    if memory is not None:
        words += ["--memory", memory]
    own = planned if family_of(case) == "plan" else advised
    own(case, question, words)


def advised(case: Case, question: plans.Question, words: list[object]) -> None:
    runtime = family_of(case)
    if question.memory[0] is not None:
        words += ["--memory", "reserve=0"]
    ran = case.run("advise", "layers.json", "--for", runtime, *words, "-o", "out", codes=(0, 2, 3))
    if ran.code:
        return
    answer = load(case.folder / "out" / "advice.json")
    case.violations += false_gains(case, question, runtime, answer)
    case.violations += false_texts(case, ran.out, [*answer["advice"].values()])


def false_gains(
    case: Case, question: plans.Question, runtime: str, answer: dict[str, Any]
) -> Iterator[str]:
    """Yield every false statement of advice.json on alternatives and rows."""
    rows, chosen, capacity = answer["rows"], answer["chosen"], question.memory[0]
    untried = {one for text in answer["not_tried"] for one in families_of(text)}
    best = dict[str, tuple[int, str]]()
    shipped = dict[str, list[int]]()
    for row in rows:
        name = f"{row['schedule']}, groups of {row['group']} ({row['split']}, {row['placement']})"
        if row["fits"] and capacity is not None and row["peak_memory"] > capacity:
            yield f"{name} is called fitting, with {row['peak_memory']} of {capacity}"
        yield from _false_cut(question, row, name)
        own = _own(question, runtime, row, row["group"])
        if own is None or row["recompute"] or row["recompute_first"]:
            continue
        if row["fits"] and own != (row["makespan"], row["peak_memory"]):
            yield f"{name} has {(row['makespan'], row['peak_memory'])}, ours {own}"
        plain = row["split"] == "even" and row["group"] is None and row["runs"]
        if plain and _no_layout(question, runtime, row):
            shipped.setdefault(row["schedule"], []).append(own[0])
    for family, time, words in _settings(case, question, runtime, rows):
        if family not in best or time < best[family][0]:
            best[family] = (time, words)
    yield from _of_placements(question, runtime, answer, untried)
    if chosen is None:
        return
    worse = [r["makespan"] for r in rows if r["runs"] and r["makespan"] < chosen["makespan"]]
    if worse:
        yield f"takes {chosen['makespan']}, its own table has {min(worse)}"
    gain = answer["advice"].get("Gain", "")
    yield from _false_alternatives(said.gains_in(gain), chosen["makespan"], best, shipped, rows)


def _false_alternatives(
    gains: Iterator[said.Gain],
    value: int,
    best: dict[str, tuple[int, str]],
    shipped: dict[str, list[int]],
    rows: list[dict[str, Any]],
) -> Iterator[str]:
    """Hold every alternative named: its time is a row's, and no setting of ours is shorter."""
    for gain in gains:
        time, family = round(shown(gain.time, percent=False).value), gain.family
        if gain.change and not _close(gain.change, value, time):
            yield f"{gain.change!r} with {value} against {time}"
        if not family:
            continue
        mine = [r["makespan"] for r in rows if r["schedule"] == family and r["runs"]]
        if time not in mine:
            yield f"{gain.name} is said to take {time}, its rows {sorted(mine)[:3]}"
        least = shipped.get(family, []) if "as shipped" in gain.name else mine
        if "best" in gain.name and min(least, default=time) < time:
            yield f"{gain.name} is said to take {time}, its own table has {min(least)}"
        count, known = gain.count, best.get(family)
        if "as shipped" in gain.name:
            if shipped.get(family) and time not in shipped[family]:
                yield f"{gain.name} is said to take {time}, ours {sorted(shipped[family])}"
        elif count is not None and count[0] < count[1]:
            if re_best(gain.name):
                yield f"{gain.sentence!r} calls the best what is one of those tried"
        elif known is not None and known[0] < time:
            yield f"{gain.name} is said to take {time}, {known[1]} takes {known[0]}"


def _no_layout(question: plans.Question, runtime: str, row: dict[str, Any]) -> bool:
    """Whether a framework cuts so by itself: Megatron-LM wants a layout for unequal stages."""
    blocks = sum(layer.get("role", "block") == "block" for layer in question.layers)
    return runtime != "megatron" or blocks % len(row["layers_per_stage"]) == 0


def re_best(name: str) -> bool:
    """Whether a name claims to be the best of all, not of those that were tried."""
    return "best" in name and not any(word in name for word in ("tried", "found", " of "))


def _close(change: str, value: int, reference: int) -> bool:
    """Whether a printed change is right within its last digit; claims.py rounds, not we."""
    found = shown(change.split(maxsplit=1)[0])
    exact = Fraction(reference - value, reference) * (1 if "shorter" in change else -1)
    return 0 < exact < found.step if found.less else abs(exact - found.value) < found.step


def _own(
    question: plans.Question, runtime: str, row: dict[str, Any], group: int | None
) -> tuple[int, list[int]] | tuple[int, int] | None:
    """Makespan and peak of a row's cut with 1F1B of ours; ``None`` if it is another schedule."""
    family, devices, m = row["schedule"], question.devices, question.microbatches
    chunks = len(row["layers_per_stage"]) // devices
    if family == "interleaved-1f1b":
        group = group or shipped_group(runtime, devices, m)
    elif family != "1f1b" or row["placement"] != "chain":
        return None
    if group is None and chunks > 1:
        return None
    found = built(
        expected_problem(question, runtime, row), in_turns(devices, chunks, m, group or devices)
    )
    return None if found is None else (found[0], max(found[1]))


def _settings(
    case: Case, question: plans.Question, runtime: str, rows: list[dict[str, Any]]
) -> Iterator[tuple[str, int, str]]:
    """Build settings of ours on the even and the balanced splits that the answer has.

    Splits that the runtime cannot run are left out: they fit, and do not run.
    """
    devices, m = question.devices, question.microbatches
    cuts_of = {
        (r["schedule"], r["placement"], r["split"], *r["layers_per_stage"]): r
        for r in rows
        if r["schedule"] in ("1f1b", "interleaved-1f1b")
        and r["split"] in ("even", "balanced")
        and (r["runs"] or not r["fits"])
    }
    for row in [*cuts_of.values()]:
        key, count = (row["schedule"], row["placement"], "balanced"), len(row["layers_per_stage"])
        cut = _only_balanced(question, count)
        if not any(other[:3] == key for other in cuts_of) and cut:
            cuts_of[*key, *cut] = row | {"split": "balanced", "layers_per_stage": cut}
    sizes = [size for size in range(devices, m + 1) if takes_group(devices, m, size)]
    ways = [
        (row, size)
        for row in cuts_of.values()
        if runtime != "automodel" or min(_blocks(question, row)) > 0
        for size in (sizes if row["schedule"] == "interleaved-1f1b" else [devices])
    ]
    for row, size in case.rng.sample(ways, min(len(ways), _BUILDS)):
        own = _own(question, runtime, row, size)
        if own is not None:
            words = f"{row['schedule']}, groups of {size} ({row['split']}, {row['placement']})"
            yield row["schedule"], own[0], words


def _blocks(question: plans.Question, row: dict[str, Any]) -> list[int]:
    """Transformer layers of every stage; NeMo AutoModel wants one on each."""
    roles, cut = [layer.get("role") for layer in question.layers], row["layers_per_stage"]
    ends = [sum(cut[: k + 1]) for k in range(len(cut))]
    return [roles[e - size : e].count("block") for size, e in zip(cut, ends, strict=True)]


def _only_balanced(question: plans.Question, stages: int) -> tuple[int, ...] | None:
    """The cut whose busiest device has least work, in a loop; ``None`` if there are several."""
    works = [layer["F"] + layer["B"] + layer["W"] for layer in question.layers]
    homes = [*range(question.devices)] * (stages // question.devices)
    found = [(most_work(works, cut, homes), cut) for cut in cuts(len(works), stages)]
    least = min(found)[0]
    best = [cut for work, cut in found if work == least]
    return best[0] if len(best) == 1 else None


def _false_cut(question: plans.Question, row: dict[str, Any], name: str) -> Iterator[str]:
    """Hold an even or a balanced cut against what these words mean."""
    cut, layers = row["layers_per_stage"], question.layers
    stages = len(cut)
    homes = [*range(question.devices)] * (stages // question.devices)
    if row["placement"] == "vee":
        homes = [*range(question.devices), *reversed(range(question.devices))]
    if row["split"] == "even":
        blocks = _blocks(question, row)
        if max(blocks) - min(blocks) > 1:
            yield f"{name} has {blocks} blocks per stage"
    elif row["split"] == "balanced":
        works = [layer["F"] + layer["B"] + layer["W"] for layer in layers]
        mine = most_work(works, cut, homes)
        least = min(most_work(works, other, homes) for other in cuts(len(layers), stages))
        slack = max(works) if stages > question.devices else 0  # exact in a chain alone
        if mine > least + slack:
            yield f"{name} has a device with work {mine}, {least} is possible"


def _of_placements(
    question: plans.Question, runtime: str, answer: dict[str, Any], untried: set[tuple[str, str]]
) -> Iterator[str]:
    """An even row in each placement, unless it was not tried; interleaved 1F1B as shipped has one.

    A balanced one may be left out where it cannot be shorter: the judge builds it.
    """
    left = " ".join(entry["name"] for entry in answer["left_out"])
    rows = [row for row in answer["rows"] if row["split"] in ("even", "balanced")]
    for placement in dict.fromkeys(row["placement"] for row in rows):
        splits = {row["split"] for row in rows if row["placement"] == placement}
        named = any(placement == where for _, where in untried) or placement in left
        if splits == {"balanced"} and not named:
            yield f"{placement}: no even row, and nothing says why"
    shown_rows = [line[:2] for line in answer["table"]["lines"]]
    group = shipped_group(runtime, question.devices, question.microbatches)
    shipped = [
        row
        for row in rows
        if (row["schedule"], row["split"], row["group"]) == ("interleaved-1f1b", "even", None)
        and row["fits"]
        and _no_layout(question, runtime, row)
    ]
    if (
        shipped
        and group
        and not any(line[0] == "interleaved-1f1b" and line[1] == "even" for line in shown_rows)
    ):
        yield f"interleaved 1F1B as shipped has no row in {shown_rows}"


def planned(case: Case, question: plans.Question, words: list[object]) -> None:
    rng = case.rng
    shapes = rng.choice([["chain"], ["loop"], ["vee"], ["any"], ["loop,chunks=3"]])
    most = len(question.layers) // question.devices
    if shapes != ["chain"] and most < (3 if "3" in shapes[0] else 2):
        shapes = ["chain"]
    ran = case.run(
        "plan", "layers.json", *words, "--placement", *shapes, "-o", "out", codes=(0, 2, 3)
    )
    if ran.code:
        return
    plan = load(case.folder / "out" / "plan.json")
    case.violations += false_plan(question, shapes[0], plan)
    case.violations += false_texts(case, ran.out, [". ".join(plan["gains"])])


def false_plan(question: plans.Question, asked: str, plan: dict[str, Any]) -> Iterator[str]:
    """Yield every false statement of plan.json on its own table and gains."""
    value, rows = plan["value"], plan["comparison"]
    chunks = asked.partition("=")[2] or "2"
    allowed = {
        "chain": {"chain"},
        "vee": {"vee"},
        "loop": {f"loop of {chunks}"},
        "any": {"chain", "vee", "loop of 2"},
    }[asked.partition(",")[0]]
    for row in rows:
        name, where = f"row {row['name']!r}", row["placement"]
        if value is None or where not in allowed:
            continue
        cells = [cell["value"] for cell in row["schedules"].values() if cell["fits"]]
        cells += [] if row["best_order"] is None else [row["best_order"]]
        if cells and min(cells) < value:
            yield f"takes {value}, {name} of its own table has {min(cells)}"
        yield from _false_cell(question, row, name)
    splits = product(sorted(allowed), ("even split", "balanced split"))
    for where, split in splits:
        words = {word for word in split.split() if word != "split"}
        if not any(
            row["placement"] == where and words & {*row["name"].replace("-", " ").split()}
            for row in rows
        ):
            if split.startswith("balanced") and _one_cut(question, rows, where):
                continue
            yield f"no {split} in a {where}: {[(r['name'], r['placement']) for r in rows]}"
    for gain in plan["gains"][:1]:
        if false := said.false_product(gain, plan["gains"][1:]):
            yield f"gains: {false}"


def _one_cut(question: plans.Question, rows: list[dict[str, Any]], where: str) -> bool:
    """Whether the even split in a placement is balanced, too."""
    row = next((r for r in rows if r["placement"] == where and "even" in r["name"]), None)
    return row is None or not list(_false_cut(question, row | {"split": "balanced"}, ""))


def _false_cell(question: plans.Question, row: dict[str, Any], name: str) -> Iterator[str]:
    """Hold the 1F1B of a row against ours; with several stages per device it is interleaved."""
    devices, m = question.devices, question.microbatches
    cell = row["schedules"].get("1F1B")
    chunks = len(row["layers_per_stage"]) // devices
    group = shipped_group("megatron", devices, m) if chunks > 1 else devices
    if cell is None or row["placement"] == "vee" or group is None or any(row["recompute"]):
        return
    as_row = {
        "recompute": [],
        "recompute_first": None,
        "why_not": "Megatron-LM runs orders of its own",
    }
    problem = expected_problem(question, "megatron", row | as_row)
    own = built(problem, in_turns(devices, chunks, m, group))
    if cell["fits"] != (own is not None):
        yield f"{name}: 1F1B fits {cell['fits']}, ours {own}"
    elif own is not None and own[0] != cell["value"]:
        yield f"{name}: 1F1B takes {cell['value']}, ours {own[0]}"


def false_texts(case: Case, out: str, answers: list[str]) -> Iterator[str]:
    """Yield what is wrong with the texts of an answer by themselves."""
    page = case.folder / "out" / "report.html"
    texts = [*answers, out]
    texts += [said.page_text(page.read_text(encoding="utf-8"))] if page.exists() else []
    for text in texts:
        yield from (f"more than the capacity: {one}" for one in said.beyond_capacity(text))
    for text in answers:
        yield from (f"a gain without its alternative: {one}" for one in said.nameless_gains(text))
        yield from (f"a limit of nothing: {one}" for one in said.nameless_limits(text))
    yield from (f"two figures for one thing: {one}" for one in said.two_figures(texts))
    flat = " ".join(out.split())
    lost = [one for text in answers for one in said.sentences(text) if said.sentences(text)]
    lost = [one for one in lost if "% shorter" in one and one.lower() not in flat.lower()]
    yield from (f"not in the terminal: {one!r}" for one in lost)
