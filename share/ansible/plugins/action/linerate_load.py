"""Compares a host's clock with the controller's and gives the host its part of the load."""
import re
import time

from ansible import context
from ansible.plugins.action import ActionBase
from ansible_collections.linerate.linerate.plugins.module_utils.command import part


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        hosts = task_vars["ansible_play_hosts"]
        forks = context.CLIARGS.get("forks") or 5
        if forks < len(hosts):
            return {**result, "failed": True, "msg": "%d generators need --forks %d" % (len(hosts), len(hosts))}
        bound = float(args.pop("max_clock_offset", 0.05))
        clock = args.get("clock") or self.clock()
        if clock is None:
            return {**result, "failed": True, "msg": "the host's clock cannot be read: date +%s.%N prints no number"}
        result["clock"] = clock
        off = abs(clock["ahead_seconds"]) - clock["uncertain_seconds"]
        if off > bound:
            msg = "the clock is %(ahead_seconds).3f s ahead of the controller's (+-%(uncertain_seconds).3f s)" % clock
            return {**result, "failed": True, "msg": msg + "; at most %.3f s are allowed" % bound}
        if "start_at" not in args:
            return result
        whole = [float(args.get(key, 10)) for key in ("rate", "duration", "start_at")]
        args.update(part(*whole, hosts.index(task_vars["inventory_hostname"]), len(hosts)), clock=clock)
        done = self._execute_module("linerate.linerate.linerate_load", args, task_vars=task_vars)
        return {**result, **done}

    def clock(self):
        """The best of five readings: offset of the host's clock, and its largest error, seconds."""
        readings = []
        for _ in range(5):
            before = time.time()
            told = self._low_level_execute_command("date +%s.%N")["stdout"]
            after = time.time()
            # A login shell may print something before it.
            words = re.findall(r"^\d+\.\d+\s*$", told, re.M)
            if words:
                ahead = float(words[-1]) - (before + after) / 2
                readings.append({"ahead_seconds": ahead, "uncertain_seconds": (after - before) / 2})
        return min(readings, key=lambda reading: reading["uncertain_seconds"], default=None)
