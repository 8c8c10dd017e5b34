#pragma once

inline volatile bool GStandInExitRequested = false;
inline bool IsEngineExitRequested() { return GStandInExitRequested; }
