#ifndef HAWSER_CODEGEN_SOURCE_TEXT_H_
#define HAWSER_CODEGEN_SOURCE_TEXT_H_

#include <string>

#include "hawser/codegen/model.h"

namespace hawser::codegen {

// foo.rpc.c++: how a stub's method names its call, and how a request finds its handler.
std::string SourceText(const FileModel& file);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_SOURCE_TEXT_H_
