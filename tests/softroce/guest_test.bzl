"""Tests that need software RDMA. They run in a guest (README.md), many in one, because starting it takes 5 s."""

def hawser_guest_test(name, tests, setup = "rxe", smp = 2, memory = "1G", virtual_time = False, test_seconds = 60, preload = None, programs = [], tags = [], **kwargs):
    """A test that runs other tests, one after the other, in one guest.

    It passes if all of them do. Where HAWSER_RDMA_DEVICE names a device of this machine, tests that any device serves
    (setup rxe or siw, no virtual time) run on that one, without a guest.

    Args:
      name: the target's name.
      tests: labels of tests or other programs; exit status 0 means passed. Tag those that cannot run without a guest
        "manual", or `bazel test //...` runs them on the host as well. $HAWSER_RDMA_DEVICE names their device.
      setup: the devices that the guest has: "rxe", "rxe_pair", "siw" or "none".
      smp: processors of the guest. With one, threads that wait for each other by spinning crawl.
      memory: of the guest. In virtual time half of it must hold the tests, with their libraries and data.
      virtual_time: the clock jumps over waits, so that timeouts cost nothing; one processor. The guest has the tests,
        with their libraries and data, in its memory, and no other files of this machine but those that hold.sh adds.
      test_seconds: what each test may take, in real time, in virtual time too.
      preload: a library that each test is started with (LD_PRELOAD).
      programs: names of programs of this machine that the tests start, for a guest in virtual time.
      tags: as of sh_test. Added is "cpu:2", for a guest with two processors: beside another one the tests of both
        take twice as long.
      **kwargs: as of sh_test. Its timeout limits all tests together.
    """
    native.sh_test(
        name = name,
        srcs = ["@hawser//tests/softroce:guest_test.sh"],
        args = [
            "--setup=" + setup,
            "--smp=%d" % smp,
            "--memory=" + memory,
            "--test_seconds=%d" % test_seconds,
        ] + (["--virtual_time"] if virtual_time else []) + (["--preload=$(rootpath %s)" % preload] if preload else []) + [
            "--program=" + program
            for program in programs
        ] + [
            "--",
        ] + ["$(rootpath %s)" % test for test in tests],
        data = tests + ([preload] if preload else []) + ["@hawser//tests/softroce:guest_test_files"],
        tags = tags + ([] if virtual_time else ["cpu:%d" % smp]),
        **kwargs
    )
