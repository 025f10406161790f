"""The command line, put together: its panels, --version and --doctor."""

from __future__ import annotations

import click

from pipesat.cli.commands import Group
from pipesat.cli.exits import CHECK_FAILED
from pipesat.core.errors import require


def _root(*, doctor: bool, as_json: bool) -> int | None:
    if not (doctor or as_json):
        return None
    require(
        doctor and click.get_current_context().invoked_subcommand is None,
        "expected --doctor, with --json if you like, and no command",
    )
    from pipesat.cli.terminal import print_answer, print_json
    from pipesat.doctor import doctor as examine

    report = examine()
    if as_json:
        print_json(report.document())
    else:
        print_answer(report)
    return 0 if report.ok else CHECK_FAILED


app = Group(
    "pipesat",
    "Pipeline-parallel training schedules with a proof of how close to optimal they are.\n\n"
    'Completion in bash: eval "$(_PIPESAT_COMPLETE=bash_source pipesat)", also zsh and fish.',
    {
        "Decide": {
            "advise": "decide",
            "solve": "decide",
            "plan": "decide",
            "compare": "compare",
            "frontier": "decide",
            "balance": "decide",
            "sweep": "sweep",
        },
        "Describe": {
            "profile": "problem",
            "problem": "problem:app",
        },
        "Look": {
            "show": "show",
            "explore": "show_page",
            "check": "use",
        },
        "Use": {
            "export": "use",
            "run": "use",
            "timeline": "timeline:app",
        },
    },
    callback=_root,
    invoke_without_command=True,
    params=[
        click.Option(
            ["--doctor"], is_flag=True, help="Check that it works here: versions, extras, a solve."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="With --doctor: as JSON."),
    ],
)
click.version_option(package_name="pipesat", message="%(prog)s %(version)s")(app)
