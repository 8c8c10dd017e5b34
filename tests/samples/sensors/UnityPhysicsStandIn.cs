// The types of Unity's physics that UeRlPhysics.cs uses, written from its documentation: z is forward, x right, y up, and
// a positive turn about y is clockwise, seen from above. The scene holds spheres at the height of the agent: the circles
// of World.cs, whose x is z here, and whose y is minus x.

using System;

namespace UnityEngine
{
    public struct Vector3
    {
        public float x, y, z;

        public Vector3(float x, float y, float z)
        {
            this.x = x;
            this.y = y;
            this.z = z;
        }

        public static Vector3 operator +(Vector3 a, Vector3 b) { return new Vector3(a.x + b.x, a.y + b.y, a.z + b.z); }
        public static Vector3 operator -(Vector3 a, Vector3 b) { return new Vector3(a.x - b.x, a.y - b.y, a.z - b.z); }
        public static Vector3 operator *(Vector3 a, float by) { return new Vector3(a.x * by, a.y * by, a.z * by); }
        public static float Dot(Vector3 a, Vector3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
    }

    /// <summary>About y only.</summary>
    public struct Quaternion
    {
        private double _turn;

        public static Quaternion AngleAxis(float degrees, Vector3 axis)
        {
            if (axis.y != 1) throw new NotSupportedException("the stand-in turns about y");
            return new Quaternion { _turn = degrees * Math.PI / 180 };
        }

        public static Vector3 operator *(Quaternion q, Vector3 v)
        {
            double cos = Math.Cos(q._turn), sin = Math.Sin(q._turn);
            return new Vector3((float)(v.x * cos + v.z * sin), v.y, (float)(v.z * cos - v.x * sin));
        }
    }

    public static class Mathf
    {
        public const float Rad2Deg = 57.29578f;
    }

    public sealed class Collider
    {
        internal Vector3 Centre;
        internal float Radius;
        internal string Tag;

        public bool CompareTag(string tag) { return Tag == tag; }
    }

    public struct RaycastHit
    {
        public float distance;
        public Collider collider;
    }

    public enum QueryTriggerInteraction { UseGlobal }

    public struct PhysicsScene
    {
        private static Collider[] Spheres()
        {
            return Array.ConvertAll(World.Circles, c => new Collider
            {
                Centre = new Vector3(-(float)c[1], 0, (float)c[0]), Radius = (float)c[2],
                Tag = c[3] == 0 ? "wall" : c[3] == 1 ? "ball" : "other",
            });
        }

        public bool Raycast(Vector3 origin, Vector3 direction, out RaycastHit hit, float maxDistance, int layerMask)
        {
            hit = new RaycastHit { distance = maxDistance };
            foreach (Collider sphere in Spheres())
            {
                Vector3 to = sphere.Centre - origin;
                float along = Vector3.Dot(to, direction), off = Vector3.Dot(to, to) - along * along;
                float distance = along - (float)Math.Sqrt(Math.Max(sphere.Radius * sphere.Radius - off, 0));
                if (along < 0 || off > sphere.Radius * sphere.Radius || distance >= hit.distance) continue;
                hit = new RaycastHit { distance = distance, collider = sphere };
            }
            return hit.collider != null;
        }

        public int OverlapBox(Vector3 center, Vector3 halfExtents, Collider[] results, Quaternion orientation,
            int layerMask, QueryTriggerInteraction queryTriggerInteraction)
        {
            int count = 0;
            foreach (Collider sphere in Spheres())
            {
                Vector3 to = sphere.Centre - center;
                float far = Math.Abs(Vector3.Dot(to, orientation * new Vector3(0, 0, 1))) - halfExtents.z;
                float wide = Math.Abs(Vector3.Dot(to, orientation * new Vector3(1, 0, 0))) - halfExtents.x;
                far = Math.Max(far, 0);
                wide = Math.Max(wide, 0);
                if (far * far + wide * wide < sphere.Radius * sphere.Radius) results[count++] = sphere;
            }
            return count;
        }
    }

    public struct Scene
    {
        public PhysicsScene GetPhysicsScene() { return new PhysicsScene(); }
    }

    public sealed class GameObject
    {
        public Scene scene { get { return new Scene(); } }
    }

    public sealed class Transform
    {
        public Vector3 position { get; private set; }
        public Quaternion rotation { get; private set; }
        public Vector3 forward { get { return rotation * new Vector3(0, 0, 1); } }
        public Vector3 right { get { return rotation * new Vector3(1, 0, 0); } }
        public Vector3 up { get { return new Vector3(0, 1, 0); } }
        public GameObject gameObject { get { return new GameObject(); } }

        internal void Stand(double x, double y, double heading)
        {
            position = new Vector3(-(float)y, 0, (float)x);
            rotation = Quaternion.AngleAxis(-(float)(heading * 180 / Math.PI), up);
        }
    }
}
