// What chains begin with, as text: a macro, so that longer texts are made of it by the compiler.
#pragma once

// Up to where it differs how element-wise operators are fused (kFusions in moves.h).
#define DC_OPENING "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,"
