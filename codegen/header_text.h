#ifndef HAWSER_CODEGEN_HEADER_TEXT_H_
#define HAWSER_CODEGEN_HEADER_TEXT_H_

#include <string>

#include "hawser/codegen/model.h"

namespace hawser::codegen {

// foo.rpc.h: what someone opens to learn what they can call, and what they have to implement.
std::string HeaderText(const FileModel& file);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_HEADER_TEXT_H_
