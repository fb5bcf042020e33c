#ifndef HAWSER_TOOLS_HAWSER_VALUE_TEXT_H_
#define HAWSER_TOOLS_HAWSER_VALUE_TEXT_H_

#include <capnp/dynamic.h>
#include <capnp/schema.h>

#include <cstddef>
#include <optional>
#include <string>

namespace hawser::tool {

// Values as the schema language has them: `-5`, `"a\n"`, `0x"00ff"`, `[1, 2]`, `(key = "k", place = (x =
// 1))`.
//
// At most `bytes_max` bytes and as many fields and elements are looked at, whatever a peer says that the
// value has. std::nullopt: it has more, or something in it has no text: a capability, an AnyPointer, an
// enumerant without a name. Throws kj::Exception if the value is malformed.
std::optional<std::string> ValueText(capnp::Type type, const capnp::DynamicValue::Reader& value,
                                     size_t bytes_max);
// The same of a default value or a constant. "": it is zero, empty or null.
std::optional<std::string> ValueText(capnp::Type type, capnp::schema::Value::Reader value, size_t bytes_max);

// Zero, empty or null: `0`, `""`, `[]`.
std::string ZeroText(capnp::Type type);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_VALUE_TEXT_H_
