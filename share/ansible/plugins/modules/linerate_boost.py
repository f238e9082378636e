#!/usr/bin/python
DOCUMENTATION = r"""
module: linerate_boost
short_description: Steer and pin a running UDP server, with undo
description: Runs C(linerate boost). A server that is steered and pinned already is left alone.
extends_documentation_fragment: [linerate.linerate.scope, linerate.linerate.scope.changes]
options:
  anyway: {description: Steer also if the server may keep client state in one thread., type: bool, default: false}
  pin: {description: Pin the threads of the server., type: bool, default: true}
  steer: {description: Steer its sockets., type: bool, default: true}
  receive_buffer: {description: "Enlarge receive buffers to at least this many bytes.", type: int}
"""
EXAMPLES = r"""
- name: Boost the name server
  linerate.linerate.linerate_boost: {port: 53}
- name: Restore its original state
  linerate.linerate.linerate_boost: {port: 53, state: undone}
"""
RETURN = r"""
changes: {description: "The settings that are changed, or would be.", type: list, returned: "applied, planned"}
plan: {description: The plan., type: dict, returned: "applied, planned"}
refusals: {description: "Why parts of the server cannot be boosted.", type: list, returned: "applied, planned"}
tune: {description: Number of the boost in the journal., type: int, returned: if changes were made}
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linerate.linerate.plugins.module_utils.command import CHANGES, SCOPE, Changes, options


class Boost(Changes):
    def apply_words(self):
        left_out = options(no_pin=not self.params["pin"], no_steer=not self.params["steer"])
        return self.scope() + left_out + options(**{key: self.params[key] for key in ("anyway", "receive_buffer")})

    def plan(self):
        report = self.document("linerate.boost/2", "boost", "plan", *self.apply_words(), *self.place)[0]["result"]
        if not report["plan"]["changes"] and report["refusals"]:
            self.fail("; ".join(str(refusal.get("why", refusal)) for refusal in report["refusals"]))
        return report["plan"], {"refusals": report["refusals"]}

    def is_own(self, tune):
        words = tune["goal"].split(" ")
        return words[0] == "boost" and self.params["port"] in (None, int(words[-1]) if words[-1].isdigit() else None)


def main():
    yes = {"type": "bool", "default": True}
    own = {"anyway": {"type": "bool", "default": False}, "pin": yes, "steer": yes, "receive_buffer": {"type": "int"}}
    module = AnsibleModule({**SCOPE, **CHANGES, **own}, supports_check_mode=True)
    Boost(module, "linerate.boost-apply/2", "boost").main()


if __name__ == "__main__":
    main()
