/* File: compat/nccl/nccl_functions.h: every function of the API, as TUTTI_NCCL_API(result, name,
 * parameters...), which the includer defines. One list for the header, for what the library
 * exports, and for the tests that compare it with NVIDIA's header. No include guard: it may be used
 * twice. */
/* About the library. The last error is a line of the process or of the communicator. */
TUTTI_NCCL_API(ncclResult_t, ncclGetVersion, int* version)
TUTTI_NCCL_API(const char*, ncclGetErrorString, ncclResult_t result)
TUTTI_NCCL_API(const char*, ncclGetLastError, ncclComm_t comm)
TUTTI_NCCL_API(void, ncclResetDebugInit, void)
/* Memory that peers can map. */
TUTTI_NCCL_API(ncclResult_t, ncclMemAlloc, void** ptr, size_t size)
TUTTI_NCCL_API(ncclResult_t, ncclMemFree, void* ptr)
/* Communicators. The current device is the rank's. */
TUTTI_NCCL_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* uniqueId)
TUTTI_NCCL_API(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId,
               int rank)
TUTTI_NCCL_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks,
               ncclUniqueId commId, int rank, ncclConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank,
               int nId, ncclUniqueId* commIds, ncclConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist)
TUTTI_NCCL_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm)
TUTTI_NCCL_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm)
TUTTI_NCCL_API(ncclResult_t, ncclCommAbort, ncclComm_t comm)
TUTTI_NCCL_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags)
TUTTI_NCCL_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key,
               ncclComm_t* newcomm, ncclConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList,
               int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags)
TUTTI_NCCL_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError)
TUTTI_NCCL_API(ncclResult_t, ncclCommCount, ncclComm_t comm, int* count)
TUTTI_NCCL_API(ncclResult_t, ncclCommCuDevice, ncclComm_t comm, int* device)
TUTTI_NCCL_API(ncclResult_t, ncclCommUserRank, ncclComm_t comm, int* rank)
/* Buffers that a communicator may read and write in place. */
TUTTI_NCCL_API(ncclResult_t, ncclCommRegister, ncclComm_t comm, void* buff, size_t size,
               void** handle)
TUTTI_NCCL_API(ncclResult_t, ncclCommDeregister, ncclComm_t comm, void* handle)
TUTTI_NCCL_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size,
               ncclWindow_t* win, int winFlags)
TUTTI_NCCL_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win)
/* Reductions with a factor of the rank's own. */
TUTTI_NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar,
               ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)
TUTTI_NCCL_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm)
/* Collectives and messages. They return once the work is in the stream. */
TUTTI_NCCL_API(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
               cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff,
               size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
               ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype,
               int peer, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype,
               int peer, ncclComm_t comm, cudaStream_t stream)
/* Groups: calls between start and end are started together; they nest. */
TUTTI_NCCL_API(ncclResult_t, ncclGroupStart, void)
TUTTI_NCCL_API(ncclResult_t, ncclGroupEnd, void)
TUTTI_NCCL_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo)

#ifndef TUTTI_NCCL_UNTIL_2_28 /* Since 2.29. */
TUTTI_NCCL_API(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId* uniqueId)
TUTTI_NCCL_API(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nRanks,
               const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm, ncclConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int flags)
TUTTI_NCCL_API(ncclResult_t, ncclCommResume, ncclComm_t comm)
TUTTI_NCCL_API(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat,
               uint64_t* value)
TUTTI_NCCL_API(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win,
               void** outUserPtr)
/* One-sided operations, between ranks of a host. A put is of the peer's symmetric window;
 * sigIdx and ctx are from 0 to 7, flags 0. A wait takes opCnt signals of each descriptor. */
TUTTI_NCCL_API(ncclResult_t, ncclPutSignal, const void* localbuff, size_t count,
               ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset,
               int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclSignal, int peer, int sigIdx, int ctx, unsigned int flags,
               ncclComm_t comm, cudaStream_t stream)
TUTTI_NCCL_API(ncclResult_t, ncclWaitSignal, int nDesc, ncclWaitSignalDesc_t* signalDescs,
               ncclComm_t comm, cudaStream_t stream)
/* Collectives with a configuration for this call, since 2.31. It may be NULL. */
TUTTI_NCCL_API(ncclResult_t, ncclAllReduceConfig, const void* sendbuff, void* recvbuff,
               size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclBroadcastConfig, const void* sendbuff, void* recvbuff,
               size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclReduceConfig, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclAllGatherConfig, const void* sendbuff, void* recvbuff,
               size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclReduceScatterConfig, const void* sendbuff, void* recvbuff,
               size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclAlltoAllConfig, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclGatherConfig, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t* config)
TUTTI_NCCL_API(ncclResult_t, ncclScatterConfig, const void* sendbuff, void* recvbuff, size_t count,
               ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t* config)
/* Since 2.32: not supported. */
TUTTI_NCCL_API(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t* config)
/* Parameters by name: the settings of this library, TUTTI_... */
TUTTI_NCCL_API(ncclResult_t, ncclParamBind, ncclParamHandle_t* out, const char* key)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetI8, ncclParamHandle_t h, int8_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetI16, ncclParamHandle_t h, int16_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetI32, ncclParamHandle_t h, int32_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetI64, ncclParamHandle_t h, int64_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetU8, ncclParamHandle_t h, uint8_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetU16, ncclParamHandle_t h, uint16_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetU32, ncclParamHandle_t h, uint32_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetU64, ncclParamHandle_t h, uint64_t* out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetStr, ncclParamHandle_t h, const char** out)
TUTTI_NCCL_API(ncclResult_t, ncclParamGet, ncclParamHandle_t h, void* out, int maxLen, int* len)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetParameter, const char* key, const char** value,
               int* valueLen)
TUTTI_NCCL_API(ncclResult_t, ncclParamGetAllParameterKeys, const char*** table, int* tableLen)
TUTTI_NCCL_API(void, ncclParamDumpAll, void)
#endif
