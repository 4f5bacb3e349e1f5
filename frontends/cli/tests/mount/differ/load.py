"""Several processes call whatever they like on one mount; then every file reads the same in all ways.

Usage: load.py MOUNT STATE [SEED SECONDS [LEFT_OUT...]]. Input: a mount point, steps that nobody takes; without a seed, what STATE has of an
earlier one. Output: nothing, or the files that differ, and exit code 1. Invariant: with a seed, STATE is written. Limits: a seed repeats what each process asks for, not how
the processes meet.
"""

import os
import pickle
import signal
import sys
import time

import steps as steps_of
from calls import Calls, attempt

PROCESSES = 4


def work(root, seed, until):
    """Calls of one user; how they end does not matter. A part of them is the others' as well: names and files are."""
    steps = steps_of.Steps(seed)
    uid, gid, groups = list(steps_of.USERS.values())[seed % len(steps_of.USERS)]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    calls = Calls(root)
    while time.monotonic() < until:
        _, name, args, looks = steps.step()
        if name == 'pwrite' and steps.random.randrange(3) == 0:
            name = 'aio'
        for one, of in [(name, args)] + [(look, more) for _, look, more in looks]:
            try:
                attempt(getattr(calls, one), *of)
            except (OverflowError, ValueError):
                pass


def start(root, seed, until):
    child = os.fork()
    if not child:
        try:
            work(root, seed, until)
            os._exit(0)
        finally:
            os._exit(1)
    return child


def differences(one, other, how):
    for path in sorted(set(one) | set(other)):
        here, there = one.get(path, {}), other.get(path, {})
        keys = [key for key in set(here) | set(there) if here.get(key) != there.get(key)]
        for key in keys:
            yield f'{how}: {path}: {key}: {here.get(key)}, then {there.get(key)}'
        reads = {here[key] for key in ('cached', 'direct', 'mapped') if key in here}
        if len(reads) > 1:
            yield f'{how}: {path}: {[(key, here[key]) for key in ("cached", "direct", "mapped")]}'


def main():
    root, state, *words = sys.argv[1:]
    if words:
        steps_of.NAMES = [f'n{n}' for n in range(10)]
        seed, seconds = map(int, words[:2])
        for name in words[2:]:
            del steps_of.WEIGHTS[name]
        os.chmod(root, 0o777)
        for name in steps_of.DIRS[1:]:
            os.mkdir(f'{root}/{name}')
            os.chmod(f'{root}/{name}', 0o777)
        until = time.monotonic() + seconds
        seeds = iter(range(seed * 1000, (seed + 1) * 1000))
        children = {start(root, next(seeds), until) for _ in range(PROCESSES)}
        while children:
            child, end = os.wait()
            children.remove(child)
            # Who reads a mapping that another one has cut off just now ends so.
            assert end == 0 or os.WTERMSIG(end) == signal.SIGBUS, end
            if end:
                children.add(start(root, next(seeds), until))
        before = Calls(root).walk()
        with open(state, 'wb') as file:
            pickle.dump(before, file)
    else:
        with open(state, 'rb') as file:
            before = pickle.load(file)
    files = sum('cached' in one for one in before.values())
    found = [*differences(before, Calls(root).walk(), 'again')]
    print(f'{files} files', *found[:40], sep='\n')
    sys.exit(bool(found))


main()
