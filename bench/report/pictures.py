"""The eleven pictures, in their order."""

from closed_loop import connections, histograms, in_flight, latency, processor_time, throughput
from open_loop import bulk, paced
from own import processes, threads, waiting

ALL = (latency, in_flight, connections, throughput, histograms, paced, bulk, waiting, threads, processes, processor_time)


def pictures(results):
    return [make(results) for make in ALL]
