#ifndef HAWSER_CODEGEN_HEADER_TEXT_H_
#define HAWSER_CODEGEN_HEADER_TEXT_H_

#include <string>

#include "hawser/codegen/model.h"

namespace hawser::codegen {

// foo.rpc.h: the file that a user opens to learn what can be called, and what must be implemented.
std::string HeaderText(const FileModel& file);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_HEADER_TEXT_H_
