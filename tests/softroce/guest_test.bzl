"""Tests that need software RDMA. They run in a guest (README.md), many in one, because starting it takes 5 s."""

def hawser_guest_test(name, tests, setup = "rxe", smp = 1, memory = "1G", virtual_time = False, test_seconds = 60, nics = {}, programs = [], tags = [], **kwargs):
    """A test that runs other tests, one after the other, in one guest.

    It passes if all of them do. Where HAWSER_RDMA_DEVICE names a device of this machine, tests that any device serves
    (setup rxe or siw, no virtual time) run on that one, without a guest.

    Args:
      name: the target's name.
      tests: labels of tests or other programs; exit status 0 means passed. Tag those that cannot run without a guest
        "manual", or `bazel test //...` runs them on the host as well. $HAWSER_RDMA_DEVICE names their device.
      setup: the devices that the guest has: "rxe", "rxe_pair", "siw" or "none".
      smp: processors of the guest. QEMU emulates each in a thread. Seven tests of transport and rpc, on two processors: two
        guests with one each take 87 s at once, and 84 s alone; with two each 190 s at once, and 73 s alone, since one of a
        guest's processors often spins for a lock that the other holds while the host does not run that one.
      memory: of the guest. In virtual time half of it must hold the tests, with their libraries and data.
      virtual_time: the clock jumps over waits, so that timeouts cost nothing; one processor. The guest has the tests,
        with their libraries and data, in its memory, and no other files of this machine but those that hold.sh adds.
      test_seconds: what each test may take, in real time, in virtual time too.
      nics: tests that run after the others as on a NIC, by its name: nic/nic_behavior.cc has the names, and README.md says
        what they do. On a device of this machine each runs once, as it is. Not in virtual time.
      programs: names of programs of this machine that the tests start, for a guest in virtual time.
      tags: as of sh_test. Added is "cpu:2", for a guest with two processors.
      **kwargs: as of sh_test. Its timeout limits all tests together.
    """
    preload = "@hawser//tests/softroce/nic:libnic_preload.so"
    on_nics = [(nic, test) for nic in sorted(nics) for test in nics[nic]]
    native.sh_test(
        name = name,
        srcs = ["@hawser//tests/softroce:guest_test.sh"],
        args = [
            "--setup=" + setup,
            "--smp=%d" % smp,
            "--memory=" + memory,
            "--test_seconds=%d" % test_seconds,
        ] + (["--virtual_time"] if virtual_time else []) + (["--nics=$(rootpath %s)" % preload] if nics else []) + [
            "--program=" + program
            for program in programs
        ] + [
            "--",
        ] + ["$(rootpath %s)" % test for test in tests] + ["%s@$(rootpath %s)" % each for each in on_nics],
        data = depset(tests + [test for _, test in on_nics]).to_list() + ([preload] if nics else []) + ["@hawser//tests/softroce:guest_test_files"],
        tags = tags + (["cpu:%d" % smp] if smp > 1 else []),
        **kwargs
    )
