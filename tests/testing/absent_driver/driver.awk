# Writes the source of a libcuda.so.1 for a machine without a GPU, from `nm -D --defined-only` of NVIDIA's stub. Every
# function says that there is no device (CUDA_ERROR_NO_DEVICE, 100), but those by which cuDNN loads what it has compiled
# for a plan: these succeed, and give it something that no other function takes.
$2 == "T" {
  sub(/@.*/, "", $3)
  if ($3 ~ /^cu(LibraryLoadData|LibraryGetKernel|KernelGetFunction|ModuleLoadData|ModuleLoadDataEx|ModuleGetFunction)$/)
    print "int " $3 "(void** out) { static char something; *out = &something; return 0; }"
  else if ($3 ~ /^cu(LibraryUnload|ModuleUnload|FuncSetAttribute|KernelSetAttribute)$/)
    print "int " $3 "(void) { return 0; }"
  else
    print "int " $3 "(void) { return 100; }"
}
