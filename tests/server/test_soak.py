"""A crowd of clients, a fifth of which leave at random: nobody gets another's answer, nothing is left behind,
memory stays where it was after the first seconds. LUCE_SOAK_SECONDS: how long (3)."""
import os
import random
import time
import unittest

from harness import APIS, SANITIZED, in_parallel
from test_transport import Base, say

SECONDS = float(os.environ.get("LUCE_SOAK_SECONDS", "3"))
CLIENTS = 6
GROWTH_KIB = 16 << 10


class Soak(Base):
    settings = {"context": 8000, "sequences": 2, "queue": 64, "keep_alive_ms": 300}

    def leave_early(self, rng):
        s = self.send(say(rng.choice(("slow", "endless", "read", "short")), rng.random() < 0.7))
        time.sleep(rng.random() * 0.1)
        self.leave(s, rng.random() < 0.5)

    def one_client(self, i, end, counts):
        rng = random.Random(i)
        while time.monotonic() < end:
            leaves = rng.random() < 0.2
            counts[leaves] += 1
            if leaves:
                self.leave_early(rng)
                continue
            api, n = rng.choice(list(APIS)), rng.choice((1, 3, 20))
            a = APIS[api](self.server, f"[[word{i}]]" + "x" * rng.randrange(200), rng.random() < 0.5, max_tokens=n)
            self.assertEqual(a.text, f"code{i} " * n)

    def crowd(self, seconds):
        """(requests that stayed, requests that left)"""
        end, counts = time.monotonic() + seconds, [0, 0]
        in_parallel([lambda i=i: self.one_client(i, end, counts) for i in range(CLIENTS)])
        self.assertTrue(self.wait_for(lambda: self.status()["running"] + self.status()["waiting"] == 0))
        s = self.status()
        self.assertEqual(s["free_pages"], s["pages"])
        return counts

    def test_a_crowd_leaves_nothing_behind(self):
        """F06, K11, O01"""
        self.crowd(min(SECONDS / 3, 10))
        before = self.server.memory_kib()
        stayed, left = self.crowd(SECONDS)
        grown = self.server.memory_kib() - before
        print(f"soak: {stayed} requests stayed, {left} left, memory {before} KiB {grown:+d} KiB")
        self.assertTrue(stayed > left > 0)
        if not SANITIZED:
            self.assertLess(grown, GROWTH_KIB)


if __name__ == "__main__":
    unittest.main()
