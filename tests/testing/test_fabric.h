#ifndef HAWSER_TESTS_TESTING_TEST_FABRIC_H_
#define HAWSER_TESTS_TESTING_TEST_FABRIC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"

// The fabric that the tests of transport/ and rpc/ run over: TCP on 127.0.0.1, or, if HAWSER_RDMA_ADDRESS is
// set, RDMA on that address, which must belong to an RDMA device of this host. The tests are the same for
// both.
namespace hawser {

// "tcp" or "rdma".
std::string TestScheme();
// "127.0.0.1"
std::string TestHost();

// "tcp://127.0.0.1:7470"; port 0 is for listening.
std::string TestUri(uint16_t port = 0);

bool OverSiw();

// The completion status of a READ that the peer refuses. siw reports it as flushed.
std::string RefusedRead();

std::shared_ptr<fabric::Fabric> NewTestFabric();
SocketAddress TestAddress(uint16_t port = 0);

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_TEST_FABRIC_H_
