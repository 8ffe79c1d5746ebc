"""`castgym data release` and `castgym data export`: the published layout of episodes."""

from dataclasses import replace
from typing import Annotated

import typer

from castgym.cli.console import Out, Overwrite, say
from castgym.data.release import fetch_release, read_release
from castgym.data.release_export import export_release
from castgym.data.schema import Case
from castgym.data.store import save_case_set
from castgym.envs.casesets import EMBEDDED, load_cases
from castgym.envs.episode import MAX_CALLS, Episode, EpisodeConfig
from castgym.tools.fwbench import FWBENCH_TOOLS


def release(
    source: Annotated[str, typer.Argument(help="Folder of a release, or a data set id on the Hugging Face hub.")],
    out: Out,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub data set.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Read the published episode layout into a case set, verifying every checksum."""
    case_set, targets = read_release(fetch_release(source, revision))
    save_case_set(out, case_set, targets, overwrite=overwrite)
    say(f"{out}: {len(case_set)} cases, fingerprint {case_set.fingerprint[:12]}")


def export(
    out: Out,
    cases: Annotated[str, typer.Option(help="`embedded` or a case set folder.")] = EMBEDDED,
    split: Annotated[str, typer.Option(help="Split to write, or `all`.")] = "test",
    licence: Annotated[str, typer.Option(help="Licence of the data, for the series records.")] = "unspecified",
    overwrite: Overwrite = False,
) -> None:
    """Write a case set in the published episode layout."""
    loaded = load_cases(cases)
    chosen = loaded.case_set
    if split != "all":
        chosen = chosen.where(lambda case: case.split == split)
        chosen = replace(chosen, targets_digest=loaded.targets.digest([case.case_id for case in chosen]))

    def instruction(case: Case) -> str:
        episode = Episode(case, EpisodeConfig.of(chosen, case, prompt_mode="chat"))
        return "\n\n".join(str(message["content"]) for message in episode.observe().messages)

    export_release(
        out,
        chosen,
        loaded.targets,
        instruction=instruction,
        max_calls=MAX_CALLS,
        tools=FWBENCH_TOOLS,
        licence=licence,
        overwrite=overwrite,
    )
    say(f"{out}: {len(chosen)} episodes")
