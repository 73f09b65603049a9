#include "ptx/machine.h"
namespace jaxpipe::ptx {
bool LandOneBulkCopy(Cluster&) { return false; }
void FinishBulkStore(Cluster&, const BulkStore&) {}
void TrackWgmmaRegisters(Step&) {}
void AddMbarrierHandlers(HandlerTable&) {}
void AddBulkHandlers(HandlerTable&) {}
void AddTensorMapHandlers(HandlerTable&) {}
void AddWgmmaHandlers(HandlerTable&) {}
}  // namespace jaxpipe::ptx
