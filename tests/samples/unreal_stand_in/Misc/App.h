#pragma once

struct FApp
{
	static bool UseFixedTimeStep() { return bFixed; }
	static void SetUseFixedTimeStep(bool bOn) { bFixed = bOn; }
	static void SetFixedDeltaTime(double Seconds) { Delta = Seconds; }
	static double GetFixedDeltaTime() { return Delta; }

private:
	inline static bool bFixed = false;
	inline static double Delta = 1.0 / 30.0;
};
