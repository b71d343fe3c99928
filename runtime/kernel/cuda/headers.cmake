# The headers that kernels include become string literals (kernel_headers.h).
set(kernel_headers
  runtime/device/cuda/fill_words.h
  runtime/kernel/cuda/block.h runtime/kernel/cuda/kernel_words.h
  runtime/kernel/cuda/kernels/attention.h runtime/kernel/cuda/kernels/attention_backward.h runtime/kernel/cuda/kernels/attention_parameters.h
  runtime/kernel/cuda/kernels/attention_tiles.h runtime/kernel/cuda/kernels/group_tiles.h runtime/kernel/cuda/kernels/matrix_tiles.h runtime/kernel/cuda/kernels/tensor_attention.h
  runtime/kernel/cuda/kernels/tensor_attention_backward.h runtime/kernel/cuda/kernels/tensor_attention_blocks.h runtime/kernel/cuda/kernels/tensor_attention_joint.h runtime/kernel/cuda/kernels/warp.h
  runtime/kernel/cuda/kernels/warp_tiles.h runtime/kernel/cuda/kernels/warpgroup.h runtime/kernel/cuda/kernels/batch_norm.h runtime/kernel/cuda/kernels/batch_norm_parameters.h
  runtime/kernel/cuda/kernels/blocks.h runtime/kernel/cuda/kernels/convolution.h runtime/kernel/cuda/kernels/convolution_parameters.h runtime/kernel/cuda/kernels/copies.h
  runtime/kernel/cuda/kernels/copy_parameters.h runtime/kernel/cuda/kernels/cross_entropy.h runtime/kernel/cuda/kernels/drawing.h runtime/kernel/cuda/kernels/drawing_parameters.h runtime/kernel/cuda/kernels/dropout.h
  runtime/kernel/cuda/kernels/embedding.h runtime/kernel/cuda/kernels/fill_words.h runtime/kernel/cuda/kernels/fours.h runtime/kernel/cuda/kernels/gather.h runtime/kernel/cuda/kernels/histogram.h runtime/kernel/cuda/kernels/index.h runtime/kernel/cuda/kernels/index_parameters.h
  runtime/kernel/cuda/kernels/links.h runtime/kernel/cuda/kernels/logit_parameters.h runtime/kernel/cuda/kernels/logits.h runtime/kernel/cuda/kernels/nll_loss.h
  runtime/kernel/cuda/kernels/norms.h runtime/kernel/cuda/kernels/numbers.h runtime/kernel/cuda/kernels/order.h runtime/kernel/cuda/kernels/order_parameters.h
  runtime/kernel/cuda/kernels/parameters.h runtime/kernel/cuda/kernels/pooling.h runtime/kernel/cuda/kernels/pooling_parameters.h
  runtime/kernel/cuda/kernels/reduce.h runtime/kernel/cuda/kernels/reduce_parameters.h runtime/kernel/cuda/kernels/row_parameters.h
  runtime/kernel/cuda/kernels/scan.h runtime/kernel/cuda/kernels/scan_parameters.h runtime/kernel/cuda/kernels/selection.h runtime/kernel/cuda/kernels/softmax.h runtime/kernel/cuda/kernels/sums.h runtime/kernel/cuda/kernels/triangular.h
  runtime/kernel/cuda/kernels/triangular_parameters.h runtime/kernel/cuda/kernels/update.h
  runtime/kernel/cuda/kernels/walk.h
  runtime/kernel/scalar/activations.h runtime/kernel/scalar/arithmetic.h runtime/kernel/scalar/choices.h
  runtime/kernel/scalar/drawing.h runtime/kernel/scalar/dropout.h runtime/kernel/scalar/elements.h runtime/kernel/scalar/language.h runtime/kernel/scalar/math.h
  runtime/kernel/scalar/philox.h runtime/kernel/scalar/pointwise.h runtime/kernel/scalar/row_places.h runtime/kernel/scalar/step_checks.h runtime/kernel/scalar/update.h
  src/base/step_scalars.h)
set(rows "")
foreach(header ${kernel_headers})
  file(READ ${PROJECT_SOURCE_DIR}/${header} text)
  string(APPEND rows "{\"${header}\", R\"dckernel(${text})dckernel\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/kernel_headers.inc.new "${rows}")
configure_file(${CMAKE_CURRENT_BINARY_DIR}/kernel_headers.inc.new
               ${PROJECT_BINARY_DIR}/generated/runtime/kernel/cuda/kernel_headers.inc COPYONLY)
