#include "hawser/codegen/cpp_identifiers.h"

#include <gtest/gtest.h>

namespace hawser::codegen {
namespace {

TEST(CppIdentifiersTest, ANameThatCanBeDeclaredIsAnIdentifierAndNoKeyword) {
  for (const char* good : {"a", "Requires", "_9", "final", "override", "import", "module", "int8_t"}) {
    EXPECT_TRUE(IsDeclarable(good)) << good;
  }
  for (const char* bad : {"", "9a", "a b", "a-b", "a::b", "a\n", "\xc3\xa4", "alignas", "class", "requires",
                          "char8_t", "co_await", "xor_eq"}) {
    EXPECT_FALSE(IsDeclarable(bad)) << bad;
  }
}

TEST(CppIdentifiersTest, ANamespaceIsNamesWithColonsBetweenThem) {
  for (const char* good : {"a", "a::b", "acme::kv::v2"}) EXPECT_TRUE(IsNamespace(good)) << good;
  for (const char* bad : {"", "::", "::a", "a::", "a:b", "a::::b", "a::class", "a { } namespace b", "a\n"}) {
    EXPECT_FALSE(IsNamespace(bad)) << bad;
  }
}

TEST(CppIdentifiersTest, ANamespaceThatGeneratedCodeNeedsIsTaken) {
  for (const char* taken : {"std", "std::acme", "acme::std", "acme::std::kv", "hawser", "hawser::internal",
                            "hawser::transport", "absl", "kj"}) {
    EXPECT_TRUE(IsTakenNamespace(taken)) << taken;
  }
  for (const char* good : {"acme", "acme::stds", "hawser::acme", "hawser::internal::wire", "acme::hawser",
                           "acme::absl", "capnp::annotations"}) {
    EXPECT_FALSE(IsTakenNamespace(good)) << good;
  }
}

TEST(CppIdentifiersTest, AnIncludedPathHasNothingThatEndsOrChangesItsText) {
  for (const char* good :
       {"kv.capnp", "my schemas/kv v2.capnp", "a+b(c).capnp", "\xc3\xa4.capnp", "what?.capnp"}) {
    EXPECT_TRUE(IsIncludable(good)) << good;
  }
  for (const char* bad : {"", "a\"b.capnp", "a\\b.capnp", "a>b.capnp", "a<b.capnp", "a\nb.capnp",
                          "a\rb.capnp", "a\x7f.capnp", "\xff.capnp", "what?\?/.capnp"}) {
    EXPECT_FALSE(IsIncludable(bad)) << bad;
  }
}

}  // namespace
}  // namespace hawser::codegen
