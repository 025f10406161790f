#!/usr/bin/env bash
# Finding: METIS, asked for 16 parts of 16 equal layers in a chain, puts three of them into each of two parts and leaves nine
#   parts empty. Of 24 layers in 16 parts it leaves seven empty. Nothing is said, though its limit on imbalance is 3 %.
# Package: pymetis 2025.2.2, part_graph with more than 8 parts. Up to 8 it bisects, and recursive=True does so for more: then
#   each part has a layer.
# Guess of a good engineer: a partition into k parts has k parts, where there are as many vertices, and balance is what a
#   partitioner keeps to first.
# Who is hurt: who cuts a graph of layers into many stages, or one per virtual stage. The edge cut is small because stages are
#   missing; a rank without layers shows when the model is built, and a stage of three layers sets the pace.
# Run: bash findings/metis_leaves_parts_empty.sh   (some 25 MB of downloads, ten seconds)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pymetis==2025.2.2 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import pymetis


def sizes(layers, parts, **how):
    """How many layers of a chain each part has."""
    neighbours = [[j for j in (i - 1, i + 1) if 0 <= j < layers] for i in range(layers)]
    given = list(pymetis.part_graph(parts, adjacency=neighbours, **how)[1])
    assert len(given) == layers
    return [given.count(part) for part in range(parts)]


found = {}
for layers, parts in ((8, 8), (16, 16), (24, 16), (32, 16)):
    for recursive in (None, True):
        each = found[layers, parts, recursive] = sizes(layers, parts, recursive=recursive)
        print(f"{layers} layers, {parts} parts, recursive={recursive}: {each}")
assert found[8, 8, None] == [1] * 8
assert found[32, 16, None] == [2] * 16
assert (found[16, 16, None].count(0), max(found[16, 16, None])) == (9, 3)
assert (found[24, 16, None].count(0), max(found[24, 16, None])) == (7, 3)
assert all(min(each) > 0 for (_, _, recursive), each in found.items() if recursive)
print("seen: nine of 16 parts are empty, where each could have a layer")
PY
"$work/venv/bin/python" "$work/look.py"
