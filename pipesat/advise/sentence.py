"""One sentence of advice, every part of it a fact that can be looked up in the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipesat.advise.answer import Answer, memory_text, time_text
from pipesat.advise.credit import OURS
from pipesat.advise.families import compared
from pipesat.advise.orders import best_not_run
from pipesat.advise.recomputing import needed_without, plain_row
from pipesat.advise.rows import Row
from pipesat.advise.runtimes import stages_text
from pipesat.bounds.one_device import closed_form_bound
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
from pipesat.core.rounding import rounded, rounded_down

_HEAVY: Final = 1.5  # times the usual layer: worth naming


def sentence_of(answer: Answer) -> str:
    """Return the advice; it begins with the word estimate where costs are one."""
    if answer.chosen is None:
        none = f"{answer.question.runtime} can run none of these schedules: {_why_none(answer)}"
        return "; ".join([none, *_untried(answer)])
    parts = [
        *_what(answer, answer.chosen),
        *_bottleneck(answer, answer.chosen),
        *_memory(answer, answer.chosen),
        *_offload(answer, answer.chosen),
        *_proof(answer, answer.chosen),
    ]
    start = "by an estimate of all costs, " if answer.question.layers.estimate else ""
    text = f"{start}{'; '.join(parts)}."
    return text[0].upper() + text[1:]


def _untried(answer: Answer) -> Iterator[str]:
    if answer.untried:
        yield f"not tried, as time ended before: {', '.join(answer.untried)}"


def _why_none(answer: Answer) -> str:
    found = sorted(answer.rows, key=lambda row: row.makespan)
    return found[0].why_not if found else "none was built in time"


def name_of(answer: Answer, row: Row, *, cited: bool = False) -> str:
    """Name a row: schedule, with where it was published if it is ``cited``, placement, split."""
    own = "our order" if row.name == OURS else row.name
    if cited and row.published:
        own += f" ({row.published})"
    group = "" if row.group is None else f" in groups of {row.group}"
    where = (
        f"the layout {row.layout(answer.question).text}"
        if row.split == "ours"
        else (f"the {row.split} split")
    )
    return f"{own}{group} in a {row.placement} on {where}"


def _what(answer: Answer, row: Row) -> Iterator[str]:
    question = answer.question
    text = f"take {name_of(answer, row, cited=True)}: {time_text(question, row.makespan)} per step"
    gains = [
        against(row.makespan, other.makespan, f"the best {label}", 1)
        + (f" ({answer.fewer})" if answer.fewer and "interleaved" in label else "")
        for label, other in compared(question, answer.rows)
        if other is not None and other is not row
    ]
    yield f"{text}, {' and '.join(gains)}" if gains else text
    if row.setting:
        yield row.setting
    if row.by_hand:
        yield row.by_hand
        easy = plain_row(answer)
        if easy is not None:
            setting = f" ({easy.setting})" if easy.setting else ""
            yield (
                f"with nothing by hand the best found is {name_of(answer, easy, cited=True)}"
                f"{setting}, "
                f"{time_text(question, easy.makespan)}"
            )


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
    text = f"rank {busiest.device} is the bottleneck, at work {busy} of the time"
    work = sorted(layer.amount("F") + layer.amount("BW") for layer in question.layers.layers)
    usual, equal = work[len(work) // 2], question.work
    share = percent(ratio(busiest.heaviest, busiest.work), 0)
    label = question.layers.label(busiest.layer)
    if busiest.heaviest * question.devices > equal:
        yield (
            f"{text}: {label} alone is {share} of it and more than an equal share of all work, so "
            "no split evens it out: shard it over more devices, or give it fewer"
        )
    elif busiest.heaviest > _HEAVY * usual:
        yield f"{text}: {label} is {share} of it"
    elif busiest.again:
        yield f"{text}: recomputing is {percent(ratio(busiest.again, busiest.work), 0)} of it"
    else:
        over = difference(question.devices * busiest.work, equal)
        yield f"{text}, with {at_most(over, 0)} more than an equal share" if over else text


def _memory(answer: Answer, row: Row) -> Iterator[str]:
    question = answer.question
    if question.memory is None:
        return
    if not row.again and row.first is None:
        room = memory_text(question, question.memory - question.reserve, rounded)
        most = memory_text(question, max(row.peaks) - question.reserve)
        yield f"nothing has to recompute: {most} of {room} are used at most"
        return
    who = stages_text(row.again)
    if row.first is not None:
        count = "" if row.first == 1 else f"{row.first} "
        who = f"the first {count}transformer {plural(row.first, 'layer')} of every stage"
    text = f"memory has {who} recompute"
    need = needed_without(question, row)
    yield f"{text}: {need}" if need else text


def _offload(answer: Answer, row: Row) -> Iterator[str]:
    """What offloading would bring, by a checked schedule; "nothing" and "cannot" only if proven."""
    question = answer.question
    found = min((x for x in answer.rows if x.offload), key=lambda x: x.makespan, default=None)
    if found is None:
        return
    takes = time_text(question, found.makespan)
    split = "our split" if found.split == OURS else f"the {found.split} split"
    where = f"in a {found.placement} on {split}"
    if found.makespan >= row.makespan:
        least = closed_form_bound(found.problem, "makespan").value
        at_least = time_text(question, least, rounded_down)
        if least >= row.makespan:
            yield f"offloading cannot help {where}: at your bandwidth it takes {at_least} or more"
        else:
            yield (
                f"no better schedule with offloading was found: {takes} {where}, where {at_least} "
                "are not ruled out"
            )
        return
    yield (
        f"offloading {found.offloaded} (stage, microbatch) instead, {where}, would take {takes}, "
        f"{change(found.makespan, row.makespan, 1)}, but {found.why_not}"
    )
    keep = question.problem(found.partition, found.shape, (), found.runtime).with_memory(None)
    least = closed_form_bound(keep, "makespan").value
    if found.makespan <= least:
        yield "it would cost nothing at your bandwidth: no memory makes this split shorter"
    else:
        at_least = time_text(question, least, rounded_down)
        yield f"with any memory this split takes at least {at_least}"


def _searched(answer: Answer) -> str:
    """Name what a bound is proven for: schedules that torch runs, or any."""
    runs = "" if answer.question.runtime == "megatron" else " that torch runs"
    if answer.plan is None:
        return f"schedule{runs} of this split in a {answer.shapes}, pairing F with BW alone,"
    keeps = " without offloading" if answer.question.may_offload else ""
    again = ""
    if answer.question.may_recompute:
        any_layers = answer.chosen is not None and answer.chosen.first is not None
        again = ", whichever layers recompute," if any_layers else ", whichever stages recompute,"
    return f"schedule{runs}{keeps} on any split of {answer.shapes}{again}"


def of_order(row: Row, what: str) -> Iterator[str]:
    """Say what is proven of an order, if its problem was searched: nothing is cut otherwise."""
    if row.bound is None:
        return
    again = " and these stages recomputing" if row.again or row.first is not None else ""
    standing = Standing(row.makespan, row.bound.value, of="the order")
    if standing.proven:
        yield f"{what} is proven optimal for this split{again}"
    else:
        yield f"for this split{again}, {what} can still gain {standing.gap_text(1)} at most"


def _proof(answer: Answer, row: Row) -> Iterator[str]:
    question, standing, bound = answer.question, answer.standing, answer.bound
    megatron = question.runtime == "megatron"
    any_order = ", by any order, also such as Megatron-LM cannot run" if megatron else ""
    other = best_not_run(answer.rows)
    if other is not None and other.makespan < row.makespan:
        yield (
            f"{name_of(answer, other, cited=True)} would take "
            f"{time_text(question, other.makespan)}, "
            f"{change(other.makespan, row.makespan, 1)}, but {other.why_not}"
        )
        yield from of_order(other, "that order")
    yield from _untried(answer)
    if not standing.proven and answer.plan is not None:
        yield from of_order(row, "this order")
    if bound is None:
        yield "no bound is known for it"
    elif standing.proven:
        yield f"proven optimal of all: no {_searched(answer)} is shorter"
    else:
        yield (
            f"no {_searched(answer)} takes less than "
            f"{time_text(question, bound.value, rounded_down)}, so at most "
            f"{standing.gap_text(1)} can still be gained there{any_order}"
        )
    if bound is not None and (others := answer.not_searched):
        yield f"in a {' or '.join(others)} interleaved 1F1B alone was tried, and nothing is proven"
