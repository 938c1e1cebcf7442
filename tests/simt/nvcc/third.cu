// For -rdc=true: what second.cu takes from another file.
__device__ int start = 0;
__device__ int added(int a, int b) { return a + b; }
