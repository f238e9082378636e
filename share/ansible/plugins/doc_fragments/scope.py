"""Options that several modules have."""


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  program: {description: The program on the host., type: str, default: linerate}
  interfaces: {description: Only these network interfaces., type: list, elements: str, default: []}
  port: {description: Only the service on this UDP port., type: int}
  pid: {description: Only the services of this process., type: int}
author: [The linerate authors (@linerate)]
"""
    CHANGES = r"""
options:
  state:
    description:
      - C(applied) makes the changes of the plan. If the host refuses one, all are undone and the task fails.
      - C(confirmed) keeps changes that were applied with O(until_confirmed). It fails if O(tune) is not in effect, for example because it was undone.
      - C(planned) returns the plan and changes nothing. C(undone) restores the original values.
    type: str
    choices: [applied, confirmed, planned, undone]
    default: applied
  until_confirmed:
    description: The host undoes the changes by itself after this time, such as C(60s), unless they are confirmed.
    type: str
  keep_if_better:
    description: Measure the service under its own load before and after. If it is worse, undo and fail.
    type: bool
    default: false
  measure: {description: How to measure the service., type: str, choices: [once, alternate, never]}
  tune: {description: Confirm or undo only this tune., type: int}
  state_dir: {description: Directory of the journal., type: path}
attributes:
  check_mode: {support: full, description: Changes nothing and reports what would change.}
  diff_mode: {support: full, description: Each setting with its old and new value.}
"""
