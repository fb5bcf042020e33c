// Snippets of docs/guide.md: TLS.

#include <sys/stat.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "docs/snippets/page_store.h"
#include "gmock/gmock.h"
#include "hawser/health.rpc.h"
#include "hawser/tests/tls/certificates.h"

namespace pages {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// snippet: tls_credentials
// Three PEM files: who this process is, the key that proves it, and the authorities that it trusts.
hawser::TlsCredentials CredentialsIn(const std::string& folder) {
  return {.certificate = folder + "/certificate.pem",
          .key = folder + "/key.pem",
          .authorities = folder + "/authorities.pem"};
}
// end of snippet

// A folder with the files for the URI `name`.
std::string FolderOf(const hawser::CertificateAuthority& authority, const std::string& name) {
  const std::string folder = authority.NewPath("folder");
  EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
  hawser::CertificateNames names = hawser::LoopbackNames();
  names.uris = {name};
  hawser::CertificateOptions options;
  options.certificate_path = folder + "/certificate.pem";
  options.key_path = folder + "/key.pem";
  authority.Issue(names, options);
  hawser::ReplaceFile(folder + "/authorities.pem", hawser::ReadFile(authority.authorities_path()));
  return folder;
}

TEST(TlsTest, OnlyTheWebMayReadPages) {
  const hawser::CertificateAuthority authority;
  std::string folder = FolderOf(authority, "spiffe://example.org/pages");
  PlainPages store;
  // snippet: tls_server
  hawser::ServerOptions options;
  options.credentials = CredentialsIn(folder);
  options.authorize = [](const hawser::ServerContext& context) -> absl::Status {
    if (hawser::IsBuiltIn(context.method())) return absl::OkStatus();  // Health checks, and what tools ask.
    const hawser::PeerIdentity& caller = context.peer_identity();
    if (caller.HasUri("spiffe://example.org/web")) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat(caller.ToString(), " may not call ", context.method().name));
  };
  hawser::Server server(std::move(options));
  // end of snippet
  EXPECT_TRUE(server.AddService(&store).ok());
  const absl::StatusOr<std::string> listening = server.Listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  const std::string uri = *listening;
  for (const bool is_the_web : {true, false}) {
    folder = FolderOf(authority, is_the_web ? "spiffe://example.org/web" : "spiffe://example.org/mail");
    // snippet: tls_client
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel =
        hawser::Channel::Connect(uri, {.credentials = CredentialsIn(folder)});
    if (!channel.ok()) std::cerr << channel.status() << std::endl;  // Unauthenticated, and why.
    // end of snippet
    ASSERT_TRUE(channel.ok());
    EXPECT_TRUE((*channel)->peer_identity().HasUri("spiffe://example.org/pages"));
    auto call = PagesStub(*channel).Read();
    call.request().setNumber(7);
    const absl::Status status = call.Send().Wait().status();
    EXPECT_EQ(status.code(), is_the_web ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied);
    EXPECT_TRUE(hawser::health::HealthStub(*channel).Check().Send().Wait().ok());
    if (!is_the_web) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("URI:spiffe://example.org/mail"), HasSubstr("may not call")));
    }
  }
  EXPECT_TRUE(absl::IsUnauthenticated(hawser::Channel::Connect(uri).status()));
}

}  // namespace
}  // namespace pages
