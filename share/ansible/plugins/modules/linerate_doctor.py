#!/usr/bin/python
DOCUMENTATION = r"""
module: linerate_doctor
short_description: Find problems along the packet path of a host
description: Runs C(linerate doctor), which changes nothing. The fact C(linerate_findings) has the findings.
extends_documentation_fragment: [linerate.linerate.scope]
options:
  interval: {description: Read counters twice and judge by the difference; seconds., type: float}
  fail_on:
    description: Fail if a finding has this severity or a higher one.
    type: str
    choices: [high, medium, low, note]
  dest: {description: "Write the JSON document to this file on the host, which only the user may read.", type: path}
"""
EXAMPLES = r"""
- name: Diagnose the name server
  linerate.linerate.linerate_doctor: {port: 53, interval: 5, fail_on: high}
"""
RETURN = r"""
findings: {description: "ID, severity, title and remedy of each finding, worst first.", type: list, returned: always}
severities: {description: Number of findings by severity., type: dict, returned: always}
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linerate.linerate.plugins.module_utils.command import SCOPE, Linerate, options

SEVERITIES = ["high", "medium", "low", "note"]


def main():
    module = AnsibleModule(
        {**SCOPE, "interval": {"type": "float"}, "fail_on": {"choices": SEVERITIES}, "dest": {"type": "path"}},
        supports_check_mode=True,
    )
    linerate = Linerate(module)
    words = linerate.scope() + options(interval=module.params["interval"])
    document = linerate.document("linerate.doctor/2", "doctor", *words)[0]
    keys = ("id", "severity", "title", "remedy")
    findings = [{key: found[key] for key in keys} for found in document["result"]["findings"]]
    severities = {level: sum(found["severity"] == level for found in findings) for level in SEVERITIES}
    result = {"findings": findings, "severities": severities, "ansible_facts": {"linerate_findings": findings}}
    if module.params["dest"]:
        linerate.save(document, module.params["dest"])
    limit = module.params["fail_on"]
    failing = [found for found in findings if limit and SEVERITIES.index(found["severity"]) <= SEVERITIES.index(limit)]
    if failing:
        module.fail_json(msg="; ".join("%(id)s: %(title)s" % found for found in failing), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
