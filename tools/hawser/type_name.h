#ifndef HAWSER_TOOLS_HAWSER_TYPE_NAME_H_
#define HAWSER_TOOLS_HAWSER_TYPE_NAME_H_

#include <capnp/schema.h>

#include <string>

namespace hawser::tool {

// "UInt64", "List(KeyValue.Entry)": a type as errors name it. Escaped: a peer may have sent the schema.
std::string TypeName(capnp::Type type);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_TYPE_NAME_H_
