#!/usr/bin/python
DOCUMENTATION = r"""
module: linerate_tune
short_description: Fix the findings of doctor, with undo
description: Runs C(linerate tune). A host that has nothing to fix is left alone, so the second run changes nothing.
extends_documentation_fragment: [linerate.linerate.scope, linerate.linerate.scope.changes]
options:
  profile: {description: Name of a profile or a file on the host., type: str}
  only: {description: Fix only these findings or stages., type: list, elements: str, default: []}
  except_for: {description: Do not fix these findings or stages., type: list, elements: str, default: []}
  plan: {description: Apply this plan file on the host instead of a new plan., type: path}
"""
EXAMPLES = r"""
- name: Tune, and let the host undo the changes unless it is confirmed
  linerate.linerate.linerate_tune: {port: 53, keep_if_better: true, until_confirmed: 60s}
- name: Ask the name server
  ansible.builtin.command: dig @localhost example.com
  changed_when: false
- name: Keep the changes
  linerate.linerate.linerate_tune: {state: confirmed}
"""
RETURN = r"""
changes: {description: "The settings that are changed, or would be.", type: list, returned: "applied, planned"}
plan: {description: The plan., type: dict, returned: "applied, planned"}
skipped_findings: {description: "Findings that the plan does not fix, with the reason.", type: list, returned: "applied, planned"}
tune: {description: Number of the tune in the journal., type: int, returned: if changes were made}
measurement: {description: The service before and after., type: dict, returned: if changes were made}
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linerate.linerate.plugins.module_utils.command import CHANGES, SCOPE, Changes, options


class Tune(Changes):
    def plan_words(self):
        if self.params["plan"]:
            return options(plan=self.params["plan"])
        joined = {name: ",".join(self.params[of]) or None for name, of in (("only", "only"), ("except", "except_for"))}
        return self.scope() + options(**{"for": self.params["profile"]}, **joined)

    apply_words = plan_words

    def plan(self):
        plan = self.document("linerate.plan/2", "tune", "plan", *self.plan_words(), *self.place)[0]
        return plan, {}

    def is_own(self, tune):
        return tune["goal"].split(" ")[0] != "boost"


def main():
    names = {"type": "list", "elements": "str", "default": []}
    own = {"profile": {"type": "str"}, "only": names, "except_for": names, "plan": {"type": "path"}}
    module = AnsibleModule({**SCOPE, **CHANGES, **own}, supports_check_mode=True)
    Tune(module, "linerate.tune-apply/2", "tune").main()


if __name__ == "__main__":
    main()
