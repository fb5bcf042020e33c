// The order in which connections of one host, and of several, have their turns.
#include "hawser/transport/fabric/tcp/turns.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/base/peer_table.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"

namespace hawser::fabric {
namespace {

class Connection final : public TurnPlace {
 public:
  Connection(Turns& turns, std::string called, uint8_t host) : name(std::move(called)), turns_(turns) {
    if (host != 0) turns.SetHost(*this, PeerHost(Loopback(/*port=*/0, host)));
    turns.Add(*this);
  }
  ~Connection() { turns_.Leave(*this); }
  const std::string name;

 private:
  Turns& turns_;
};

class TurnsTest : public ::testing::Test {
 protected:
  Connection& New(const std::string& name, uint8_t host) {
    connections_.push_back(std::make_unique<Connection>(turns_, name, host));
    return *connections_.back();
  }
  static const std::string& NameOf(const TurnPlace& place) {
    return static_cast<const Connection&>(place).name;
  }
  // The next `count` turns. Each has more to deliver after its own.
  std::string Take(int count) {
    std::string names;
    for (; count > 0; --count) {
      TurnPlace* const place = turns_.TakeFirst();
      if (place == nullptr) return names + " none";
      turns_.Add(*place);
      names += NameOf(*place);
    }
    return names;
  }
  // As TakeEach() takes them, all of which have more.
  std::string TakeEach() {
    std::string names;
    turns_.TakeEach([&](TurnPlace& place) {
      names += NameOf(place);
      turns_.Add(place);
    });
    return names;
  }

  Turns turns_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

TEST_F(TurnsTest, ConnectionsOfOneHostTakeTurns) {
  for (const char* name : {"a", "b", "c"}) New(name, 1);
  EXPECT_EQ(Take(7), "abcabca");
}

TEST_F(TurnsTest, AHostWithManyConnectionsLeavesAnotherEverySecondTurn) {
  for (const char* name : {"a", "b", "c", "d"}) New(name, 1);
  New("X", 2);
  EXPECT_EQ(Take(8), "aXbXcXdX");
}

TEST_F(TurnsTest, ConnectionsWhoseHostIsNotKnownAreOneHost) {
  New("a", 0);
  New("b", 0);
  New("X", 2);
  EXPECT_EQ(Take(6), "aXbXaX");
}

TEST_F(TurnsTest, OneThatKeepsItsTurnIsNext) {
  for (const char* name : {"a", "b", "c"}) New(name, 1);
  New("X", 2);
  ASSERT_EQ(Take(1), "a");
  turns_.MoveToFront(*connections_[0]);
  EXPECT_EQ(Take(4), "aXbX");
  turns_.MoveToFront(*connections_[1]);
  EXPECT_EQ(Take(5), "bXcXa");
}

TEST_F(TurnsTest, OneThatLeavesHasNoTurn) {
  for (const char* name : {"a", "b", "c"}) New(name, 1);
  New("X", 2);
  connections_.erase(connections_.begin() + 1);
  connections_.pop_back();
  EXPECT_EQ(Take(3), "aca");
  connections_.clear();
  EXPECT_TRUE(turns_.empty());
  EXPECT_EQ(Take(1), " none");
}

TEST_F(TurnsTest, TheLastOneIsWhatWasAddedLast) {
  EXPECT_EQ(turns_.last(), nullptr);
  Connection& a = New("a", 1);
  Connection& b = New("b", 1);
  EXPECT_EQ(turns_.last(), &b);
  Connection& x = New("X", 2);
  EXPECT_EQ(turns_.last(), &x);
  for (Connection* const each : {&a, &x, &b}) {
    ASSERT_EQ(turns_.TakeFirst(), each);
    EXPECT_NE(turns_.last(), each);
    turns_.Add(*each);
    EXPECT_EQ(turns_.last(), each);
  }
}

TEST_F(TurnsTest, EachIsTakenOnceAndTheOrderStays) {
  for (const char* name : {"a", "b", "c"}) New(name, 1);
  New("X", 2);
  New("Y", 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(TakeEach(), "abcXY");
  EXPECT_EQ(Take(6), "aXbYcX");
}

TEST_F(TurnsTest, ThoseThatAreTakenMayLeaveAndMakeOthersLeave) {
  for (const char* name : {"a", "b", "c"}) New(name, 1);
  New("X", 2);
  New("Y", 3);
  std::string names;
  turns_.TakeEach([&](TurnPlace& place) {
    names += NameOf(place);
    if (NameOf(place) == "a") {
      for (int i = 0; i < 4; ++i) connections_.erase(connections_.begin());  // All but Y.
    } else {
      turns_.Add(place);
    }
  });
  EXPECT_EQ(names, "aY");
  New("Z", 2);
  EXPECT_EQ(Take(3), "YZY");
}

TEST_F(TurnsTest, OneWhoseHostBecomesKnownWhileItWaitsStaysInLine) {
  New("a", 1);
  Connection& b = New("b", 0);
  New("c", 1);
  turns_.SetHost(b, PeerHost(Loopback(/*port=*/0, /*host=*/1)));
  EXPECT_EQ(Take(4), "acba");
}

}  // namespace
}  // namespace hawser::fabric
