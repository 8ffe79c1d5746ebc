"""How an episode can end. The policy's faults are scored; the infrastructure's are not."""

from typing import Literal, get_args

Outcome = Literal["completed", "invalid_submission", "budget_exhausted", "truncated", "infrastructure_error"]
"""How an episode ended.

`completed`: a feasible plan, or a whole forecast, was committed. `invalid_submission`: an answer that is neither.
`budget_exhausted`: the limit of calls or responses came without an answer. `truncated`: a response hit the token limit.
`infrastructure_error`: the machinery failed; never scored, never trained on.
"""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
