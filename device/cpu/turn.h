/* device/cpu/turn.h - v_transpose through memory, for lanes without instructions for it. */
#ifndef LUCE_DEVICE_CPU_TURN_H
#define LUCE_DEVICE_CPU_TURN_H

/* Lane j of vector i and lane i of vector j change places. */
INLINE void v_transpose(v16 t[LANES])
{
    float at[LANES][LANES];
    for (int i = 0; i < LANES; i++) v_store(at[i], t[i]);
    for (int i = 0; i < LANES; i++) {
        float row[LANES];
        for (int j = 0; j < LANES; j++) row[j] = at[j][i];
        t[i] = v_load(row);
    }
}

#endif
