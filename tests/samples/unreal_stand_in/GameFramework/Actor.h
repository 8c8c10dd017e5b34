#pragma once

#include "CoreMinimal.h"

class AActor : public UObject
{
public:
	FVector GetActorLocation() const { return Location; }
	bool SetActorLocation(const FVector& NewLocation)
	{
		Location = NewLocation;
		return true;
	}
	void AddActorWorldOffset(const FVector& Offset)
	{
		Location = FVector(Location.X + Offset.X, Location.Y + Offset.Y, Location.Z + Offset.Z);
	}

private:
	FVector Location;
};
