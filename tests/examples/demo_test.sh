#!/usr/bin/env bash
# The demo runs through.
exec examples/demo
