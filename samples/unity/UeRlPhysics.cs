// The eyes of UeRlSensors.cs in Unity's 3D physics. Written from Unity's documentation: compiled, not run in Unity.
//
//     var eye = new UeRlPhysics(transform, mask);                 // once
//     int rest = eye.Write(rays, row, at);                        // in OnReset and OnResult

using UnityEngine;

namespace UeRl
{
    /// <summary>What an agent meets in the physics scene that it is in. A collider has a sensor's tag where Unity's
    /// CompareTag says so. The agent's own colliders belong on a layer outside `mask`.</summary>
    public sealed class UeRlPhysics
    {
        private readonly Transform _agent;
        private readonly int _mask;
        private readonly Collider[] _found = new Collider[64];
        private readonly UeRlCast _cast;
        private readonly UeRlLook _look;
        private string[] _tags;
        private float _half;

        public UeRlPhysics(Transform agent, int mask = ~0)
        {
            _agent = agent;
            _mask = mask;
            _cast = Cast;
            _look = Look;
        }

        public int Write(UeRlRaySensor sensor, float[] row, int at)
        {
            _tags = sensor.Tags;
            return sensor.Write(_cast, row, at);
        }

        public int Write(UeRlGridSensor sensor, float[] row, int at)
        {
            _tags = sensor.Tags;
            _half = (float)sensor.Cell / 2;
            return sensor.Write(_look, row, at);
        }

        private PhysicsScene Scene { get { return _agent.gameObject.scene.GetPhysicsScene(); } }

        private double Cast(double angle, double length, out int tag)
        {
            // Unity turns clockwise, seen from above
            Quaternion turn = Quaternion.AngleAxis(-(float)angle * Mathf.Rad2Deg, _agent.up);
            RaycastHit hit;
            tag = -1;
            if (!Scene.Raycast(_agent.position, turn * _agent.forward, out hit, (float)length, _mask)) return length;
            for (int i = _tags.Length - 1; i >= 0; i--)
                if (hit.collider.CompareTag(_tags[i])) tag = i;
            return hit.distance;
        }

        private uint Look(double forward, double left)
        {
            Vector3 centre = _agent.position + _agent.forward * (float)forward - _agent.right * (float)left;
            var half = new Vector3(_half, _half, _half);
            int count = Scene.OverlapBox(centre, half, _found, _agent.rotation, _mask, QueryTriggerInteraction.UseGlobal);
            uint bits = 0;
            for (int k = 0; k < count; k++)
                for (int tag = 0; tag < _tags.Length; tag++)
                    if (_found[k].CompareTag(_tags[tag])) bits |= 1u << tag;
            return bits;
        }
    }
}
