// A Status as the handler returned it is what the caller gets.

#include "hawser/rpc/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

absl::Status Cross(const absl::Status& status) {
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t) { return status; };
  return SendAct(server.Connect(), 1).Wait().status();
}

TEST(StatusTest, EveryCodeAndItsMessageCross) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t number) {
    return absl::Status(static_cast<absl::StatusCode>(number), "because of that");
  };
  const auto channel = server.Connect();
  for (int code = 1; code <= 16; ++code) {
    EXPECT_EQ(SendAct(channel, code).Wait().status(),
              absl::Status(static_cast<absl::StatusCode>(code), "because of that"));
  }
}

TEST(StatusTest, DetailsCross) {
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/key", absl::Cord(std::string("a\0b", 3)));
  status.SetPayload("acme/empty", absl::Cord());
  EXPECT_EQ(Cross(status), status);
}

TEST(StatusTest, AMessageMayBeEmptyOrOfAnyLanguage) {
  EXPECT_EQ(Cross(absl::AbortedError("")), absl::AbortedError(""));
  EXPECT_EQ(Cross(absl::AbortedError("k\xc3\xa4se \xe2\x82\xac\\n")),
            absl::AbortedError("k\xc3\xa4se \xe2\x82\xac\\n"));
}

TEST(StatusTest, ControlCharactersOfAPeersTextAreEscaped) {
  EXPECT_EQ(Cross(absl::AbortedError(std::string("a\0b\xff\x1b[2J\n\xe2\x80\xae", 12))),
            absl::AbortedError("a\\x00b\\xff\\x1b[2J\\n\\u202e"));
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/\x1b[2J", absl::Cord("\x1b is data here"));
  absl::Status escaped = absl::NotFoundError("no tow");
  escaped.SetPayload("acme/\\x1b[2J", absl::Cord("\x1b is data here"));
  EXPECT_EQ(Cross(status), escaped);
}

TEST(StatusTest, ALongMessageIsCutBetweenCharactersAndSaysSo) {
  std::string text;
  while (text.size() < 2 * internal::kStatusMessageMax) text += "\xe2\x82\xac";  // 3 bytes each.
  const std::string arrived(Cross(absl::InternalError(text)).message());
  EXPECT_LE(arrived.size(), internal::kStatusMessageMax + 3);
  EXPECT_GT(arrived.size(), internal::kStatusMessageMax - 3);
  EXPECT_EQ(arrived, text.substr(0, arrived.size() - 3) + "...");
  EXPECT_EQ((arrived.size() - 3) % 3, 0u);
}

TEST(StatusTest, DetailsThatAreTooLargeStayBehind) {
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/large", absl::Cord(std::string(internal::kStatusDetailBytesMax + 1, 'x')));
  status.SetPayload("acme/small", absl::Cord("y"));
  const absl::Status arrived = Cross(status);
  EXPECT_EQ(arrived.message(), "no tow");
  EXPECT_FALSE(arrived.GetPayload("acme/large").has_value());
  EXPECT_EQ(arrived.GetPayload("acme/small"), absl::Cord("y"));
}

TEST(StatusTest, MoreDetailsThanFitAreLeftOut) {
  absl::Status status = absl::NotFoundError("no tow");
  for (size_t i = 0; i < 2 * internal::kStatusDetailsMax; ++i) {
    status.SetPayload("acme/" + std::to_string(i), absl::Cord("y"));
  }
  size_t arrived = 0;
  Cross(status).ForEachPayload([&](absl::string_view, const absl::Cord&) { ++arrived; });
  EXPECT_EQ(arrived, internal::kStatusDetailsMax);
}

TEST(StatusTest, WhetherACallWasSentIsAskedOfThatCallOnly) {
  absl::Status other = absl::UnavailableError("the server behind me is down");
  internal::SetWasSent(other, false);
  ASSERT_FALSE(WasSent(other));
  EXPECT_TRUE(WasSent(Cross(other)));
}

TEST(StatusTest, AnErrorOfACallNamesWhatWasDoneAndWhetherItWasSent) {
  const absl::Status sent =
      internal::CallError(absl::StatusCode::kUnavailable, "calling a at b", "lost", true);
  EXPECT_TRUE(WasSent(sent));
  EXPECT_EQ(sent.message(), "calling a at b: lost; it was sent, so the server may have run it");
  const absl::Status unsent =
      internal::CallError(absl::StatusCode::kUnavailable, "calling a at b", "lost", false);
  EXPECT_FALSE(WasSent(unsent));
  EXPECT_EQ(unsent.message(), "calling a at b: lost; it was not sent");
}

}  // namespace
}  // namespace hawser
