"""The advice in labelled lines, every one a fact that can be looked up in the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.choose.answer import Answer, memory_text, parts_text, time_text
from pipesat.choose.ends import End
from pipesat.choose.families import best_not_run, compared
from pipesat.choose.question import Question
from pipesat.choose.rows import OURS, Row
from pipesat.choose.runtimes import stages_text
from pipesat.choose.table import needed_without, plain_row
from pipesat.core.amounts import rounded, rounded_down
from pipesat.core.claims import (
    Standing,
    against,
    at_most,
    change,
    difference,
    percent,
    plural,
    ratio,
)
from pipesat.core.showing import Facts, sentences

_HEAVY: Final = 1.5  # times the usual layer: worth naming


def lines_of(answer: Answer) -> Facts:
    """Return the lines of the advice, the most important first."""
    row = answer.chosen
    if row is None:
        found = sorted(answer.rows, key=lambda row: row.makespan)
        why = found[0].why_not if found else "none was built in time"
        none = f"nothing: {answer.question.runtime} can run none of these schedules, {why}"
        return [("Take", none), ("Doubt", sentences(_doubts(answer)))]
    question, easy = answer.question, plain_row(answer)
    estimate = " (estimate)" if question.layers.estimate else ""
    time = time_text(question, row.makespan)
    without = ""
    if easy is not None:
        setting = f" ({easy.setting})" if easy.setting else ""
        without = f"{name_of(easy, cited=True)}{setting}: {time_text(question, easy.makespan)}"
    return [
        ("Take", f"{name_of(row, cited=True)}: {time} a step{estimate}"),
        ("You must", _work(row, easy)),
        ("Without", without),
        ("Gain", sentences(_gains(answer, row))),
        ("Limit", sentences([*_bottleneck(answer, row), *_memory(answer, row)])),
        ("Proof", sentences(_proof(answer, row))),
        ("Offload", sentences(_offload(answer, row))),
        ("Doubt", sentences(_doubts(answer))),
        ("Next", _next(answer)),
    ]


def details_of(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield what else is known: layout, what does not run, the ends of an estimate's ranges."""
    row, question = answer.chosen, answer.question
    if row is not None:
        yield "layout", row.layout(question).text
        other = best_not_run(answer.rows)
        if other is not None and other.makespan < row.makespan:
            time = time_text(question, other.makespan)
            gain = change(other.makespan, row.makespan, 1)
            text = f"{name_of(other, cited=True)} would take {time}, {gain}. {other.why_not}"
            yield "does not run", ". ".join([text, *of_order(other, "that order")])
        yield "estimate", question.layers.estimate
    for end in answer.ends if row is not None else ():
        best, least = end.least
        what = f"{end.words}, each in its own order"
        yield "range", f"{what}: {name_of(best)} is the shortest, {time_text(question, least)}"
    for name, why in answer.left_out:
        yield "left out", f"{name}: {why}"


def name_of(row: Row, *, cited: bool = False) -> str:
    """Name a row: schedule, with where it was published if it is ``cited``, placement, split."""
    own = "pipesat's order" if row.name == OURS else row.name
    if cited and row.published:
        own += f" ({row.published})"
    group = "" if row.group is None else f" in groups of {row.group}"
    split = "pipesat's" if row.split == OURS else row.split
    return f"{own}{group}, {_place(row.placement)}, {split} split"


def _place(placement: str) -> str:
    return placement.replace("vee", "V")


def _work(row: Row, easy: Row | None) -> str:
    """What is to be done by hand, and what that saves."""
    if not row.by_hand:
        return f"nothing by hand ({row.setting})" if row.setting else "nothing by hand"
    if easy is None or easy.makespan == row.makespan:
        return row.by_hand
    return f"{row.by_hand}: it is {against(row.makespan, easy.makespan, 'without', 1)}"


def _gains(answer: Answer, row: Row) -> Iterator[str]:
    """What is gained over 1F1B as frameworks ship it, and over the best rows that users know."""
    question = answer.question
    even = [x for x in answer.rows if x.name == "1f1b" and x.split == "even"]
    able = [x for x in even if x.runs and not x.by_hand]
    shipped = min(able, key=lambda x: x.makespan, default=None)
    if even and shipped is None:
        yield "1F1B as shipped (even split, nothing by hand) was not found to fit"
    others = [("1F1B as shipped", shipped)]
    others += [(f"the best {label}", other) for label, other in compared(question, answer.rows)]
    seen = {id(None)}
    for label, other in others:
        if other is row:
            yield f"none: this is {label}"
        elif other is not None and id(other) not in seen:
            gain = against(row.makespan, other.makespan, label, 1)
            yield f"{gain} ({time_text(question, other.makespan)})"
        seen.add(id(other))


@dataclass(frozen=True)
class _Busiest:
    """The device with most to do: its work per microbatch, and its heaviest layer."""

    device: int
    work: int
    layer: int
    heaviest: int
    again: int


def _busiest(answer: Answer, row: Row) -> _Busiest:
    layers = answer.question.layers
    recomputing = row.recomputes(answer.question)

    def work(layer: int, *, again: bool) -> int:
        one = layers.layers[layer]
        split = one.amount("B", recompute=again) + one.amount("W", recompute=again)
        return one.amount("F", recompute=again) + min(one.amount("BW", recompute=again), split)

    found = []
    for device in range(answer.question.devices):
        own = [
            layer
            for part, home in zip(row.partition, row.shape.homes, strict=True)
            for layer in part
            if home == device
        ]
        each = {layer: work(layer, again=layer in recomputing) for layer in own}
        plain = sum(work(layer, again=False) for layer in each)
        total = sum(each.values())
        most = max(each, key=lambda layer: each[layer], default=0)
        found.append(_Busiest(device, total, most, each.get(most, 0), total - plain))
    return max(found, key=lambda one: one.work)


def _bottleneck(answer: Answer, row: Row) -> Iterator[str]:
    question = answer.question
    if question.parts is not None:
        every = question.microbatches * len(row.problem.stages)
        yield (
            f"{row.pairs} of its {every} forwards run together with a backward"
            if row.pairs
            else "nothing runs together in it"
        )
        return
    busiest = _busiest(answer, row)
    busy = percent(ratio(question.microbatches * busiest.work, row.makespan), 0)
    text = f"the bottleneck is rank {busiest.device}, busy {busy} of the time"
    work = sorted(layer.amount("F") + layer.amount("BW") for layer in question.layers.layers)
    usual, equal = work[len(work) // 2], question.work
    share = percent(ratio(busiest.heaviest, busiest.work), 0)
    label = question.layers.label(busiest.layer)
    if busiest.heaviest * question.devices > equal:
        yield f"{text}, {label} alone is {share} of that and more than an equal share of all work"
        yield "no split evens it out: shard that layer over more devices, or use fewer devices"
    elif busiest.heaviest > _HEAVY * usual:
        yield f"{text}, {label} is {share} of that"
    elif busiest.again:
        yield f"{text}, recomputing is {percent(ratio(busiest.again, busiest.work), 0)} of that"
    else:
        over = difference(question.devices * busiest.work, equal)
        yield f"{text}, with {at_most(over, 0)} more than an equal share" if over else text


def _memory(answer: Answer, row: Row) -> Iterator[str]:
    question = answer.question
    if question.memory is None:
        return
    if not row.again and row.candidate.first is None:
        free = memory_text(question, question.memory - question.reserve, rounded)
        most = memory_text(question, max(row.peaks) - question.reserve)
        yield f"nothing has to recompute: {most} of {free} are used at most"
        return
    who = stages_text(row.again)
    if row.candidate.first is not None:
        count = "" if row.candidate.first == 1 else f"{row.candidate.first} "
        who = f"the first {count}transformer {plural(row.candidate.first, 'layer')} of every stage"
    need = needed_without(question, row)
    text = f"to fit into memory, {who} {plural(len(row.again), 'recompute', '')}"
    yield f"{text}: {need}" if need else text


def _offload(answer: Answer, row: Row) -> Iterator[str]:
    """What offloading would bring, by a checked schedule; "nothing" and "cannot" only if proven."""
    question = answer.question
    found = min(
        (x for x in answer.rows if x.candidate.offload), key=lambda x: x.makespan, default=None
    )
    if found is None:
        return
    takes = time_text(question, found.makespan)
    where = f"{_place(found.placement)}, {'pipesat' if found.split == OURS else found.split} split"
    if found.makespan >= row.makespan:
        least = closed_form_bound(found.problem, "makespan").value
        at_least = time_text(question, least, rounded_down)
        if least >= row.makespan:
            yield f"it cannot help ({where}): at your bandwidth it takes {at_least} or more"
        else:
            yield f"no better schedule with it was found: {takes} ({where})"
            yield f"{at_least} are not ruled out"
        return
    gain = change(found.makespan, row.makespan, 1)
    yield f"{found.offloaded} (stage, microbatch) instead would take {takes} ({where}), {gain}"
    yield found.why_not
    plain = question.candidate(found.partition, found.shape, (), found.candidate.runtime)
    keep = plain.problem.with_memory(None)
    least = closed_form_bound(keep, "makespan").value
    if found.makespan <= least:
        yield "it would cost nothing at your bandwidth: no memory makes this split shorter"
    else:
        at_least = time_text(question, least, rounded_down)
        yield f"with any memory this split takes at least {at_least}"


def _searched(answer: Answer) -> str:
    """Name what a bound is proven for: schedules that torch runs, or any."""
    question = answer.question
    runs = f" that {question.runtime} runs" if question.any_order else ""
    shapes = _place(answer.shapes)
    if answer.plan is None:
        return f"schedule{runs} of this split in a {shapes} that pairs F with BW alone"
    keeps = " without offloading" if answer.question.may_offload else ""
    again = ""
    if answer.question.may_recompute:
        any_layers = answer.chosen is not None and answer.chosen.candidate.first is not None
        again = ", whichever layers recompute," if any_layers else ", whichever stages recompute,"
    return f"schedule{runs}{keeps} on any split of {shapes}{again}"


def of_order(row: Row, what: str) -> Iterator[str]:
    """Say what is proven of an order, if its problem was searched: nothing is cut otherwise."""
    if row.bound is None:
        return
    again = " and these stages recomputing" if row.again or row.candidate.first is not None else ""
    standing = Standing(row.makespan, row.bound.value, of="the order")
    if standing.proven:
        yield f"{what} is proven optimal for this split{again}"
    else:
        yield f"for this split{again}, {what} can still gain {standing.gap_text(1)} at most"


def _proof(answer: Answer, row: Row) -> Iterator[str]:
    question, standing, bound = answer.question, answer.standing, answer.bound
    megatron = not question.any_order
    any_order = ", in any order, also such as Megatron-LM cannot run" if megatron else ""
    if bound is None:
        yield "no bound is known for it"
    elif standing.proven:
        yield f"proven optimal of all: no {_searched(answer)} is shorter"
    else:
        least = time_text(question, bound.value, rounded_down)
        yield (
            f"at most {standing.gap_text(1)} less is possible: no {_searched(answer)} takes less "
            f"than {least}{any_order}"
        )
    if not standing.proven and answer.plan is not None:
        yield from of_order(row, "this order")
    if bound is not None and (others := answer.not_searched):
        yield f"in a {' or '.join(others)} interleaved 1F1B alone was tried, and nothing is proven"


def _doubts(answer: Answer) -> Iterator[str]:
    """What is assumed, estimated or not tried."""
    question = answer.question
    if question.layers.estimate:
        text, about = "all costs are an estimate", question.layers.estimate_range
        if about is not None:
            text += f" (x {about[0] / 1000:.2f} to {about[1] / 1000:.2f})"
        yield text
        if question.tokens:
            yield f"a microbatch is taken to have {question.tokens:,} tokens"
        yield from _at_the_ends(answer)
    else:
        yield "costs are taken as exact"
    if not question.latency and question.bandwidth is None:
        yield "links are taken as free"
    if question.memory is not None and question.reserve:
        free, memory = (
            memory_text(question, amount, rounded) for amount in (question.reserve, question.memory)
        )
        yield f"{free} of {memory} per rank are kept free"
    if text := parts_text(question):
        yield text
    if answer.untried:
        yield f"not tried, as time ended before: {', '.join(answer.untried)}"
    if answer.fewer:
        yield f"interleaved 1F1B: {answer.fewer}"
    yield from (f"no bound is claimed: {text}" for text in answer.contradictions)


def _at_the_ends(answer: Answer) -> Iterator[str]:
    """Whether the advice stays the shortest at all ends of the estimate's ranges."""
    chosen, ends = answer.chosen, answer.ends
    if chosen is None or not ends:
        return

    def gain(end: End) -> float:
        return 1 - end.least[1] / max(1, end.of(chosen))

    worst = max(ends, key=gain)
    row, least = worst.least
    if least >= worst.of(chosen):
        yield (
            "the advice is the same with all compute, the head alone, or the time of W "
            "against B at either end of the estimate's range"
        )
        return
    shorter = change(least, worst.of(chosen), 1)
    yield (f"the advice depends on it: {worst.words}, {name_of(row)} is {shorter}")


def _next(answer: Answer) -> str:
    """The next thing to do."""
    question: Question = answer.question
    if question.layers.estimate:
        return "measure your layers with pipesat profile, then pipesat advise with its file"
    if not question.any_order:
        return "run one step with these flags, and compare its time with this one"
    return "run the order, then pipesat timeline compare says where measured times differ"
