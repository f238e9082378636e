#!/usr/bin/python
DOCUMENTATION = r"""
module: linerate_load
short_description: Send requests from all hosts of a play at the same moment
description:
  - Runs C(linerate load) on each host. Each of N hosts sends every N-th request, so that together they keep the
    schedule of one generator.
  - The clock of each host is compared with the controller's. A host whose clock is off, or that is late, fails.
options:
  program: {description: The program on the host., type: str, default: linerate}
  targets: {description: "Destinations, ADDR:PORT.", type: list, elements: str, required: true}
  rate: {description: Requests per second of all hosts together., type: float, required: true}
  duration: {description: Seconds., type: float, default: 10}
  start_at:
    description: The moment, in seconds since 1970 by the controller's clock. Without it only clocks are compared.
    type: float
  clock: {description: RV(clock) of an earlier comparison., type: dict}
  max_clock_offset: {description: Largest difference of clocks., type: float, default: 0.05}
  dest: {description: "Write the JSON document to this file on the host, which only the user may read.", type: path, required: true}
  arguments: {description: Further arguments of C(linerate load)., type: list, elements: str, default: []}
author: [The linerate authors (@linerate)]
"""
EXAMPLES = r"""
- name: Send 100,000 requests per second together
  linerate.linerate.linerate_load:
    {targets: ["192.0.2.1:53"], rate: 100000, start_at: "{{ linerate_start }}", dest: /run/linerate-load.json}
"""
RETURN = r"""
sent: {description: Requests of this host., type: int, returned: success}
answered: {description: Answered requests of this host., type: int, returned: success}
clock: {description: "ahead_seconds of the host's clock, and its uncertain_seconds.", type: dict, returned: always}
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linerate.linerate.plugins.module_utils.command import Linerate, options


def main():
    text, number, texts = {"type": "str"}, {"type": "float"}, {"type": "list", "elements": "str"}
    module = AnsibleModule(
        {
            "program": {**text, "default": "linerate"},
            "targets": {**texts, "required": True},
            "rate": {**number, "required": True},
            "duration": {**number, "default": 10.0},
            "start_at": number,
            "clock": {"type": "dict"},
            "dest": {"type": "path", "required": True},
            "arguments": {**texts, "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="check mode sends nothing")
    linerate = Linerate(module)
    start = "%.6f" % params["start_at"]
    timing = options(rate="%.9f" % params["rate"], duration="%.9f" % params["duration"], start_at=start)
    document, _, err = linerate.document(
        "linerate.load/2", "load", *params["targets"], *timing, "--quiet", *params["arguments"]
    )
    outcome = document["result"]
    outcome["clock"] = params["clock"]
    linerate.save(document, params["dest"])
    counts = {key: outcome[key] for key in ("sent", "answered", "lost", "generator_bound")}
    module.exit_json(changed=False, stderr=err, **counts)


if __name__ == "__main__":
    main()
