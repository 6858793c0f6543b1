"""The server's page: a form for a problem and a solution, and below it the picture of the scores. It has no script."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi.responses import HTMLResponse

from pathfinder.pages.example import PROBLEM, STEPS
from pathfinder.pages.formulas import Formulas
from pathfinder.pages.page import STYLE, escaped, template
from pathfinder.pages.picture import LEGEND, picture_of
from pathfinder.prm.results import ScoredSolution, UnscoredSolution

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_FIELDS = 2


def read_form(body: bytes) -> tuple[str, str]:
    """Problem and steps from a form as a browser sends it; a missing field is empty.

    Raises ``ValueError`` if there are other fields.
    """
    found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FIELDS)
    problem, steps = (found.get(name, [""])[0].replace("\r\n", "\n").strip() for name in ("problem", "steps"))
    return problem, steps


def page(
    model: str,
    problem: str = PROBLEM,
    steps: str = "\n\n".join(STEPS),
    scored: ScoredSolution | UnscoredSolution | None = None,
    refusal: str = "",
    status: int = 200,
) -> HTMLResponse:
    """The page with the form filled in; ``refusal`` says why there are no scores."""
    found = picture_of(scored.problem, scored.steps) if scored and scored.scored else None
    given = {"model": model, "problem": problem, "steps": steps, "style": STYLE, "legend": LEGEND}
    said = verdict(scored) if scored else refusal
    content = template("try.html").render(given, scored=found, status=said, formulas=Formulas(escaped))
    return HTMLResponse(content, status, {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"})


def verdict(scored: ScoredSolution | UnscoredSolution) -> str:
    """The result in a sentence."""
    if not scored.scored:
        return f"Not scored: the solution is {scored.reason}."
    if scored.first_error is None:
        return "No step is flagged."
    return f"The first incorrect step is step {scored.first_error + 1}."
