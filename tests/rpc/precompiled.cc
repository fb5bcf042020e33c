#include "tests/rpc/probe.h"
