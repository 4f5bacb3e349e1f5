"""The same random calls on two mounts: results, contents and attributes are the same.

Usage: differ.py OURS THEIRS [SEED STEPS [timeless] [unallocated]]. Input: mount points; without a seed what is there is compared;
timeless: times are not looked at; unallocated: without fallocate. Output: nothing, or exit code 1
and a difference: as few steps as lead to it, and what both say. Invariants: each user of each mount is a
process; calls are made one after the other. Limits: times are compared by whether they changed since the last look.
"""

import os
import pickle
import sys
import time

import steps as steps_of
from calls import Calls, attempt

# Seconds for the search of fewer steps.
PATIENCE = int(os.environ.get('DIORITE_PATIENCE', 60))
# Seconds until the kernel has told the server of a close.
PATIENCE_FOR_CLOSES = 10
# CLOCK_REALTIME_COARSE of Linux.
COARSE = 5


class Worker:
    """A process that calls as one user on one mount."""

    def __init__(self, root, user):
        into, self.to = os.pipe()
        self.frm, out = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.to)
            os.close(self.frm)
            try:
                serve(root, user, os.fdopen(into, 'rb'), os.fdopen(out, 'wb'))
            finally:
                os._exit(0)
        os.close(into)
        os.close(out)
        self.to, self.frm = os.fdopen(self.to, 'wb'), os.fdopen(self.frm, 'rb')

    def ask(self, name, args):
        pickle.dump((name, args), self.to)
        self.to.flush()
        return pickle.load(self.frm)

    def end(self):
        # Not by the end of its input: processes that were forked later have that open, too.
        pickle.dump(None, self.to)
        self.to.close()
        os.waitpid(self.pid, 0)


def serve(root, user, into, out):
    uid, gid, groups = user
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    calls = Calls(root)
    while True:
        asked = pickle.load(into)
        if not asked:
            return
        name, args = asked
        try:
            answer = attempt(getattr(calls, name), *args)
        except (OverflowError, ValueError) as e:
            answer = f'no call: {e}'
        pickle.dump(answer, out)
        out.flush()


class Side:
    """One mount, with what was last seen of each inode."""

    looks_at_times = True

    def __init__(self, root):
        self.workers = {name: Worker(root, user) for name, user in steps_of.USERS.items()}
        self.seen = {}

    def ask(self, user, name, args):
        answer = self.workers[user].ask(name, args)
        if name != 'look' or not isinstance(answer, dict):
            return answer
        ino = answer.pop('ino')
        if not Side.looks_at_times:
            answer['mtime'] = answer['ctime'] = None
            return answer
        before = self.seen.get(ino)
        now = (answer['mtime'], answer['ctime'])
        self.seen[ino] = now
        for key, then, at in zip(('mtime', 'ctime'), before or now, now):
            answer[key] = 'new' if not before else 'as before' if then == at else 'changed'
        return answer

    def forget(self, path):
        """An inode number may come again: what was seen of it is another file's."""
        answer = self.workers['root'].ask('look', [path, 'cached'])
        if isinstance(answer, dict):
            self.seen.pop(answer['ino'], None)

    def end(self):
        for worker in self.workers.values():
            worker.end()


def prepare(side):
    """Directories that some may not write to, and one whose group goes to what is made in it."""
    for name, args in [
        ('umask', [0]), ('chmod', ['.', 0o1777]), ('mkdir', ['p', 0o777]), ('mkdir', ['p/q', 0o777]), ('mkdir', ['r', 0o777]),
        ('chown', ['p', 1000, 1000, True]), ('chown', ['r', 1001, 3000, True]), ('chmod', ['r', 0o2777]),
    ]:
        answer = side.ask('root', name, args)
        assert answer is None, (name, args, answer)
    for user in steps_of.USERS:
        side.ask(user, 'begin', [])


class Differs(Exception):
    """At which step, what was asked, both answers, and the answers to all steps up to that."""


def check_walks(walks, what, answers):
    if not all(isinstance(walk, dict) for walk in walks):
        raise Differs(None, ('root', 'walk', [what]), walks, answers)
    for path in sorted(set(walks[0]) | set(walks[1])):
        one = [walk.get(path) for walk in walks]
        if one[0] != one[1]:
            raise Differs(None, ('root', 'walk', [path, what]), one, answers)


def wait_for_tick():
    """Until what changes now has another time than what changed before: times of files have the resolution of this clock."""
    now = time.clock_gettime(COARSE)
    while now == time.clock_gettime(COARSE):
        time.sleep(0.0005)


class Run:
    """Steps on both mounts, each time in directories of their own."""

    count = 0

    def __init__(self, roots, ticks):
        Run.count += 1
        self.ticks = ticks
        self.sides = []
        for root in roots:
            root = f'{root}/run-{Run.count}'
            os.mkdir(root)
            self.sides.append(Side(root))
            prepare(self.sides[-1])
        self.answers = []

    def both(self, number, step):
        answers = [side.ask(*step) for side in self.sides]
        until = time.monotonic() + PATIENCE_FOR_CLOSES
        while step[1] == 'statfs' and answers[0] != answers[1] and time.monotonic() < until:
            # The kernel tells a server of a close when it likes: what that frees is free a little later.
            time.sleep(0.01)
            answers = [side.ask(*step) for side in self.sides]
        if answers[0] != answers[1] and not self.is_excused(step, answers):
            raise Differs(number, step, answers, self.answers)
        return answers[0]

    def is_excused(self, step, answers):
        """The kernel's FUSE client does not know which files are immutable or append-only: it looks at permissions first, and access(2) does
        not ask the server (docs/mount.md)."""
        user, name, args = step
        ours, theirs = answers
        if theirs != 'EPERM' or not (isinstance(ours, str) or name in ('access', 'setxattr', 'removexattr') and not ours):
            return False
        things = [arg for arg in args if isinstance(arg, str)]
        things += [os.path.dirname(thing.rstrip('/')) for thing in things if '/' in thing]
        asked = [('root', 'is_unchangeable', [thing]) for thing in things] + [(user, 'is_unchangeable', [thing]) for thing in things]
        return any(self.sides[0].ask(*one) is True for one in asked)

    def all(self, steps):
        for number, (user, name, args, looks) in steps:
            if self.ticks:
                wait_for_tick()
            appends = name == 'chflags' and args[2] == steps_of.APPEND or name == 'chxflags' and args[2] == steps_of.XAPPEND
            if appends or name in ('chflags', 'chxflags') and not Side.looks_at_times:
                # Who has such a file open writes where he likes on the kernel's ext4; with writeback_cache it is busy (docs/mount.md).
                for user_of in steps_of.USERS:
                    self.both(number, (user_of, 'close_all', []))
            answer = self.both(number, (user, name, args))
            self.answers.append(answer)
            if name in ('mkdir', 'mknod', 'symlink', 'open', 'rename'):
                path = args[1] if name in ('open', 'symlink') else args[0]
                for side in self.sides:
                    side.forget(path)
            for look in looks:
                self.both(number, look)
        for what in ('once', 'again'):
            check_walks([side.ask('root', 'walk', []) for side in self.sides], what, self.answers)

    def end(self):
        for side in self.sides:
            side.end()


def differ(roots, steps, ticks=True):
    """The difference that these steps show, or None. Without ticks times may look as before although they were set."""
    run = Run(roots, ticks)
    try:
        run.all(steps)
    except Differs as found:
        return found.args
    finally:
        run.end()
    return None


def shrunk(roots, steps, found):
    """As few steps as show a difference in the answer to the same question."""
    def again(some):
        other = differ(roots, some, found[1][1] == 'look')
        return other if other and other[1] == found[1] else None

    until = time.monotonic() + PATIENCE
    size = len(steps) // 2
    while size and time.monotonic() < until:
        at = 0
        while at < len(steps) and time.monotonic() < until:
            less = steps[:at] + steps[at + size:]
            other = again(less)
            if other:
                steps, found = less, other
            else:
                at += size
        size //= 2
    return steps, found


def shown(what):
    user, name, args = what[:3]
    short = [a if not isinstance(a, bytes) or len(a) < 60 else a[:20] + b'...' for a in args]
    return f'{user}: {name}({", ".join(map(repr, short))})'


def tell(steps, found):
    number, question, (ours, theirs), answers = found
    for (at, step), answer in zip(steps, answers + ['?'] * len(steps)):
        if number is not None and at > number:
            break
        print(f'{at}: {shown(step)} = {str(answer)[:100]}')
        for look in step[3]:
            print(f'    {shown(look)}')
    print(f'DIFFERS at {number}: {shown(question)}')
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in ours if ours[key] != theirs.get(key)]
        ours, theirs = [{key: one.get(key) for key in keys} for one in (ours, theirs)]
    print(f' ours:   {ours}\n theirs: {theirs}')


def main():
    ours, theirs, seed, count, *words = (sys.argv + [None, None])[1:]
    if not seed:
        return check_walks([Calls(root).walk() for root in (ours, theirs)], 'on two mounts', [])
    Side.looks_at_times = 'timeless' not in words
    steps = steps_of.Steps(int(seed))
    steps = [(number, steps.step()) for number in range(int(count))]
    if 'unallocated' in words:
        # Before the kernel's ext4 refuses it, it has changed times and rights.
        steps = [step for step in steps if step[1][1] != 'fallocate']
    found = differ((ours, theirs), steps)
    if found:
        number = found[0]
        before = [step for step in steps if number is None or step[0] <= number]
        tell(*shrunk((ours, theirs), before, found))
        sys.exit(1)


main()
